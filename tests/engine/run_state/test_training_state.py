"""A training state as plain data, and from that again."""

import copy

import pytest
import torch
from torch import nn

from brim.engine.components.precision import Precision
from brim.engine.run_state.progress import Progress
from brim.engine.run_state.training_state import TrainingState
from brim.engine.state.weight_average import WeightAverage


def state_of(optimizer=torch.optim.AdamW, **settings):
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    made = optimizer(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(made, 2)
    return TrainingState(model, made, scheduler, Precision("32", torch.device("cpu")), Progress(), **settings)


def train(state, steps):
    """Losses that depend on all there is: weights, momentum, rate, generator."""
    losses = []
    for _ in range(steps):
        loss = state.model(torch.randn(4, 3)).square().mean()
        losses.append(loss.item())
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        state.scheduler.step()
        state.progress.step += 1
    return losses


@pytest.mark.parametrize("goes_back", [False, True])
def test_what_is_restored_trains_on_to_the_bit(goes_back):
    state = state_of()
    train(state, 3)
    weights, tensors = copy.deepcopy(state.model.state_dict()), copy.deepcopy(state.tensors())
    progress = copy.deepcopy(state.progress)
    expected = train(state, 5)
    again = state if goes_back else state_of()
    again.model.load_state_dict(weights)
    assert again.restore(tensors, progress, goes_back) == []
    assert again.progress.step == 3 and train(again, 5) == expected


def test_another_optimizer_is_refused_before_anything_has_changed():
    with pytest.raises(ValueError, match="it was made with the optimizer AdamW, and this run has SGD"):
        state_of(torch.optim.SGD).check_alike(state_of().tensors())


def test_averaged_weights_that_one_side_lacks_are_told():
    with_average, without = state_of(), state_of()
    with_average.ema = WeightAverage(with_average.model, 0.9)
    (left,) = without.restore(with_average.tensors(), Progress())
    (begun,) = with_average.restore(without.tensors(), Progress())
    assert "left: this run has no ema" in left and "ema begins with the next step" in begun
