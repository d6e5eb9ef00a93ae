"""Trap 22: an output that is kept with its graph makes memory grow with the number of slices (verl#6984)."""

import gc
import weakref

import torch
from torch import nn

import brim


class Counting(nn.Module):
    """How many earlier activations are alive when the next slice comes."""

    def __init__(self):
        super().__init__()
        self.kept, self.alive = [], []

    def forward(self, x):
        self.alive.append(sum(reference() is not None for reference in self.kept))
        out = x * 2
        self.kept.append(weakref.ref(out))
        return out.square()  # saves what it squares


def test_no_graph_is_kept_from_one_slice_to_the_next(data):
    model = nn.Sequential(nn.Linear(4, 4), Counting(), nn.Linear(4, 1))
    gc.disable()
    try:
        brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.MSELoss(), micro_batch=1)(data(), data(seed=1))
    finally:
        gc.enable()
    assert len(model[1].alive) == 16
    assert max(model[1].alive) <= 1  # that of the slice before, whose loss is still in hand
