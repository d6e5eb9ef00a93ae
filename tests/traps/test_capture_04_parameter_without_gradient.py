"""Capture trap 4: a parameter that has no gradient when the step is captured is skipped for ever."""

import pytest
import torch
from torch import nn

import brim

pytestmark = pytest.mark.gpu


class Late(nn.Module):
    """Its second layer is used once it is switched on."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.uses_second = nn.Linear(16, 1), nn.Linear(16, 1), False

    def forward(self, x):
        return self.first(x) + self.second(x.tanh()) if self.uses_second else self.first(x)


class SwitchOn(brim.Callback):
    def on_step_end(self, trainer, step, loss):
        if step == 30:
            trainer.model.uses_second = True


def decaying(parameters):
    return torch.optim.AdamW(parameters, lr=2.0**-6, weight_decay=0.5, fused=True)


def test_a_layer_that_comes_into_use_is_trained_from_then_on(twins):
    eager, tried = twins(Late, twins.rows(), "auto", callbacks=lambda: [SwitchOn()], optimizer=decaying)
    torch.manual_seed(1)
    assert not torch.equal(tried.model.second.weight.cpu(), Late().second.weight)
    assert tried.differs_from(eager) <= 1e-5


def test_a_layer_that_is_never_used_is_not_even_decayed(twins):
    captured = twins.train(Late, twins.rows(), "require", optimizer=decaying)
    assert captured.is_accounted_for
    torch.manual_seed(1)
    assert torch.equal(captured.model.second.weight.cpu(), Late().second.weight)
