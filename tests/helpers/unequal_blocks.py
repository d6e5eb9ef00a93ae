"""A model of three blocks that differ in what they keep and what they cost."""

import torch
from torch import nn

from brim.memory.forecast import make_job

WIDTH, BATCH = 256, 4096


class Block(nn.Module):
    def __init__(self, wide=1):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, wide * WIDTH), nn.Linear(wide * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(self.second(torch.tanh(self.first(x))))


def net():
    return nn.Sequential(
        nn.Linear(8, WIDTH), nn.ModuleDict({"body": nn.Sequential(*(Block(w) for w in (1, 4, 2)))})["body"]
    )


def rows(n):
    return (torch.empty(n, 8),), {}


def job(**more):
    return make_job(net, rows, lambda output: output.square().mean(), **more)
