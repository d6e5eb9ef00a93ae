"""A job in micro-batches of any size: its memory and its time."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from brim.frontier.recomputed_trace import live_peak
from brim.frontier.way import Way
from brim.hardware.peaks import USUAL
from brim.memory.forecast import make_job, make_setting
from brim.memory.planning.family import fits
from brim.memory.planning.window import StepBatches, batch_tensors, family_of, sliced_family_of

MIB = 1 << 20


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        return x + self.narrow(torch.tanh(self.wide(x)))


@pytest.fixture(scope="module")
def way():
    job = make_job(lambda: nn.Sequential(*(Block() for _ in range(3))), lambda n: ((torch.empty(n, 256, 64),), {}))
    return Way(job, make_setting("NVIDIA A10G", None, None), USUAL, 64, StepBatches(prefetched=1))


@pytest.mark.matrix(2)
@pytest.mark.parametrize("slices", [1, 2, 3, 16])
def test_the_peak_is_that_of_the_step_that_a_plan_traces(way, slices):
    step = way.step(slices)
    whole = family_of(way.job, way.setting, StepBatches(prefetched=1))
    family = whole if slices == 1 else sliced_family_of(way.job, way.setting, batch_tensors(whole.trace(64)))
    assert live_peak(step.events) == pytest.approx(live_peak(family.trace(step.micro_batch).events), rel=0.01)


def test_time_grows_with_micro_batches_and_with_blocks_that_are_computed_again(way):
    few, many = way.step(2), way.step(16)
    assert (few.micro_batch, many.micro_batch) == (32, 4)
    assert few.seconds((), 1) < few.seconds((0,), 1) < few.seconds((0, 1, 2), 1)
    assert few.seconds((), 1) < many.seconds((), 1)
    assert few.seconds((), 2) > 1.5 * few.seconds((), 1)


def test_the_least_recomputation_is_one_block_less_than_does_not_fit(way):
    step = way.step(1)
    for cap in range(60 * MIB, step.reserved((), None, False), 20 * MIB):
        chosen = step.least_that_fits(cap, False)
        if chosen is None:
            assert not step.fits(range(3), cap, False)
        elif chosen:
            assert step.fits(chosen, cap, False)
            assert not step.fits(chosen[:-1], cap, False)
    assert step.least_that_fits(1 << 40, False) == ()


def test_batch_norm_speaks_against_splitting(way):
    assert way.may_split
    job = make_job(lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), lambda n: ((torch.empty(n, 8),), {}))
    assert not Way(job, way.setting, USUAL, 64).may_split


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 64, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()) for _ in range(4))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x.mean()


def test_workspaces_of_convolutions_are_left_out_where_there_is_no_room():
    job = make_job(Pictures, lambda n: ((torch.empty(n, 3, 64, 64),), {}))
    way = Way(job, make_setting("NVIDIA H200", "2.11", None), USUAL, 16)
    step, trace = way.step(1), family_of(job, way.setting).trace(16)
    tight = [cap for cap in range(64 * MIB, 256 * MIB, 8 * MIB) if not fits(trace.events, cap)]
    for cap in tight:
        assert step.fits((), cap, False) == fits(trace.events, cap, False, trace.optional)
    assert step.fits((), tight[-1], False)
    everything = range(4)
    least = next(cap for cap in range(16 * MIB, 256 * MIB, 4 * MIB) if step.fits(everything, cap, False))
    again = family_of(replace(job, checkpointing=True), way.setting).trace(16)
    assert fits(again.events, least + 8 * MIB, False, again.optional)
    assert not fits(again.events, least + 8 * MIB)
