"""Layers that are thawed while steps are captured."""

import pytest
import torch
from torch import nn

import brim

pytestmark = pytest.mark.gpu


class Thaw(brim.Callback):
    def on_epoch_end(self, trainer, epoch):
        trainer.model[0].requires_grad_(True)


def frozen():
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    model[0].requires_grad_(False)
    return model


@pytest.mark.parametrize("optimizer", ["AdamW", {"name": "SGD", "momentum": 0.9}])
def test_a_thawed_layer_is_trained_by_captured_steps_as_by_eager_ones(twins, optimizer):
    eager, captured = twins(frozen, twins.rows(), "auto", optimizer=optimizer, callbacks=lambda: [Thaw()], epochs=4)
    torch.manual_seed(1)
    start = frozen().cuda()
    assert not torch.equal(eager.model[0].weight, start[0].weight)
    assert captured.differs_from(eager) <= 1e-5
    assert captured.report.replays > 0
