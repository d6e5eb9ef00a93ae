"""Capture trap 13: a graph keeps the peak of its step reserved, and several shapes must not keep several."""

import gc

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.gpu
MIB = 1 << 20


def wide():
    return nn.Sequential(nn.Linear(16, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 1))


def reserved():
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def kept_by(twins, lengths):
    """What stays reserved after steps over batches of these lengths, and the report."""
    before = reserved()
    x, y = twins.rows(4096)
    batches = [(x[:length], y[:length]) for length in lengths for _ in range(15)] * 2
    found = twins.step_through(wide, batches, "require")
    return reserved() - before, found


def test_several_shapes_share_one_pool(twins):
    one, alone = kept_by(twins, [4096])
    assert alone.report.captured
    del alone
    several, found = kept_by(twins, [4096, 4032, 3968, 3904])
    assert found.report.graphs >= 2
    assert several <= 1.6 * one + 64 * MIB


def test_memory_comes_back_when_the_run_is_over(twins):
    kept_by(twins, [512])  # libraries and workspaces that stay for good
    before = reserved()
    kept, found = kept_by(twins, [4096])
    assert kept > 0 and found.report.captured
    del found
    assert reserved() <= before + 64 * MIB


def test_replays_take_no_more_memory_with_time(twins):
    seen = []

    def note(number, model, optimizer):
        if number in (40, 119):
            seen.append(torch.cuda.memory_reserved())

    found = twins.step_through(wide, [twins.rows(1024)] * 120, "require", after=note)
    assert found.is_accounted_for
    assert seen[1] <= seen[0] + 2 * MIB
