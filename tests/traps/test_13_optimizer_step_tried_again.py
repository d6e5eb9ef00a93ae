"""Trap 13: an optimizer that runs out within its first step has moved some weights and half made its state."""

import pytest
import torch
from helpers.faults import At, failing, ran_out
from torch import nn

import brim
from brim.errors import CannotFit


def test_the_state_is_there_before_the_first_step_and_the_step_is_not_tried_again(net, data):
    model, seen = net(), []

    class Greedy(torch.optim.AdamW):
        def step(self, closure=None):
            raise ran_out()

    Greedy.__module__ = "torch.optim.adamw"  # one of torch's own
    optimizer = Greedy(model.parameters())
    real = optimizer.step
    optimizer.step = lambda: seen.append(len(optimizer.state)) or real()
    with pytest.raises(CannotFit, match="optimizer's step"):
        brim.Step(model, optimizer, nn.MSELoss())(data())
    assert seen == [4]  # called once, with the state of all four parameters


@pytest.mark.parametrize("tensor", [2, 3, 4])
def test_half_made_state_is_cleared(net, data, weights, monkeypatch, tensor):
    failed, plain = net(), net()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "zeros_like", failing(torch.zeros_like, At(tensor)))
        brim.Step(failed, torch.optim.AdamW(failed.parameters()), nn.MSELoss(), tell=str)(data())
    brim.Step(plain, torch.optim.AdamW(plain.parameters()), nn.MSELoss(), micro_batch=4)(data())
    assert torch.equal(weights(failed), weights(plain))
