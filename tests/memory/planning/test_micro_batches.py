"""Micro-batches of a batch, beside the whole of it."""

import pytest
import torch
from torch import nn

from brim.memory.forecast import make_job, make_setting
from brim.memory.planning.largest import Search
from brim.memory.planning.micro_batches import MicroBatches

BATCH = 8192
MIB = 1 << 20


def rows(n):
    return (torch.empty(n, 1024),), {}  # 32 MiB for the whole batch


def deep():
    return nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8)))  # 32 MiB, four times with gradients and state


def slices(limit):
    return MicroBatches(Search(make_job(deep, rows), make_setting("NVIDIA H200", None, None), limit * MIB), BATCH)


@pytest.mark.parametrize(("limit", "room"), [(150, False), (220, True), (400, True)])
def test_room_is_what_the_model_and_twice_the_batch_leave(limit, room):
    assert slices(limit).leave_room() is room


@pytest.mark.matrix(2)
@pytest.mark.parametrize("limit", [350, 400, 450])
def test_the_fewest_slices_fit_and_one_less_does_not(limit):
    made = slices(limit)
    micro_batch = made.fewest(BATCH - 1)
    assert micro_batch is not None
    assert made.fits(micro_batch)
    count = -(-BATCH // micro_batch)
    assert micro_batch == -(-BATCH // count)
    assert count == 2 or not made.fits(-(-BATCH // (count - 1)))


def test_no_slice_fits_where_there_is_no_room():
    assert slices(150).fewest(BATCH - 1) is None


def test_the_traces_are_made_once_for_all_who_ask():
    whole = Search(make_job(deep, rows), make_setting("NVIDIA H200", None, None), 400 * MIB)
    assert MicroBatches(whole, BATCH).trace(16) is MicroBatches(whole, BATCH).trace(16)
    assert MicroBatches(whole, BATCH // 2).trace(16) is not MicroBatches(whole, BATCH).trace(16)
