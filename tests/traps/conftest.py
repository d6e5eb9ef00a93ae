"""A model that runs out of memory as it is told, for the traps that trainers fall into."""

import pytest
import torch
import torch.distributed as dist
from helpers.faults import Above, At, Gate
from torch import nn


class Fails(Above):
    """Says yes above so many samples, and at these calls."""

    def __init__(self, limit, at):
        super().__init__(limit)
        self.at = At(*at)

    def __call__(self, samples):
        return self.at() or super().__call__(samples)


@pytest.fixture
def net():
    def net(limit=10**9, at=(), where="forward", dropout=0.0, norm=False):
        torch.manual_seed(0)
        middle = nn.BatchNorm1d(6) if norm else nn.Identity()
        gate = Gate(Fails(limit, at), where)
        return nn.Sequential(nn.Linear(4, 6), gate, nn.Tanh(), middle, nn.Dropout(dropout), nn.Linear(6, 1))

    return net


@pytest.fixture
def data():
    def data(samples=8, seed=0):
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(samples, 4, generator=generator), torch.randn(samples, 1, generator=generator)

    return data


@pytest.fixture
def weights():
    return lambda model: torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.fixture
def alone_in_a_group():
    """torch's default process group, with nobody else in it."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
