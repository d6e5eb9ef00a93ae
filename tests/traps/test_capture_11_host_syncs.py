"""Capture trap 11: whatever waits for the device, or brings data from the host, cannot be in a graph."""

from pathlib import Path

import pytest
import torch
from torch import nn

from brim.errors import ConfigError

pytestmark = pytest.mark.gpu


def item(x):
    return x * x.mean().item()  # item


def to_cpu(x):
    return x * x.mean().cpu().to(x.device)  # to_cpu


def nonzero(x):
    return x + torch.nonzero(x > 0).float().mean()  # nonzero


def boolean_mask(x):
    return x + x[x > 0].mean()  # boolean_mask


def printed(x):
    print(x.mean())  # printed
    return x


def condition(x):
    return x if x.sum() > 0 else -x  # condition


def to_list(x):
    return x + sum(x[0].tolist())  # to_list


def unique(x):
    return x + torch.unique(x.round()).mean()  # unique


def from_list(x):
    return x + torch.tensor([0.5, 0.25] * 8, device=x.device)  # from_list


def indexed_from_the_host(x):
    return x[:, torch.arange(15, -1, -1)]  # indexed_from_the_host


def moved_from_the_host(x):
    return x + torch.ones(16).to(x.device)  # moved_from_the_host


WAITING = [item, to_cpu, nonzero, boolean_mask, printed, condition, to_list, unique]
BRINGING = [from_list, indexed_from_the_host, moved_from_the_host]


def model(change):
    class Changed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(16, 64), nn.Linear(64, 1)

        def forward(self, x):
            return self.outer(self.inner(change(x)).tanh())

    return Changed


def line_of(function):
    lines = Path(__file__).read_text().splitlines()
    return next(f"{Path(__file__).name}:{n}" for n, s in enumerate(lines, 1) if s.endswith(f"# {function.__name__}"))


@pytest.mark.parametrize("function", WAITING)
def test_what_waits_for_the_device_is_refused_by_its_line(twins, function):
    eager, tried = twins(model(function), twins.rows(), "auto")
    assert not tried.report.captured
    assert line_of(function) in tried.report.reason
    assert tried.equals(eager)
    with pytest.raises(ConfigError, match=line_of(function)):
        twins.train(model(function), twins.rows(), "require")


@pytest.mark.parametrize("function", BRINGING)
def test_what_brings_data_from_the_host_is_captured_right_or_refused_by_its_line(twins, function):
    eager, tried = twins(model(function), twins.rows(), "auto")
    assert tried.differs_from(eager) <= 1e-5
    assert tried.report.captured or line_of(function) in tried.report.reason


def test_indices_from_the_host_that_differ_each_time_are_not_frozen(twins):
    def shuffled(x):
        return x[:, torch.randperm(16)]

    eager, tried = twins(model(shuffled), twins.rows(), "auto")
    assert not tried.report.captured
    assert tried.equals(eager)
