"""Trap 12: while an exception is handled its traceback keeps the failed computation's tensors, so nothing is freed."""

import gc
import weakref

import torch
from helpers.faults import ran_out
from torch import nn

import brim


class Holding(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept, self.alive = None, None

    def forward(self, x):
        if not self.training:
            return x
        if self.kept is not None:
            self.alive = self.kept() is not None if self.alive is None else self.alive
            return x
        activation = x * 2
        self.kept = weakref.ref(activation)
        raise ran_out()


def test_recovery_happens_outside_except_when_the_failed_tensors_are_gone(data):
    model = nn.Sequential(nn.Linear(4, 4), Holding(), nn.Linear(4, 1))
    step = brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.MSELoss(), tell=str)
    gc.disable()
    try:
        step(data())
    finally:
        gc.enable()
    assert model[1].alive is False
