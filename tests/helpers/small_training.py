"""A training of a second: forty rows, a small net with dropout, and an optimizer with momentum."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))


def sgd(parameters: Iterable[Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.5)
