"""Whose operators and storages are whose."""

import pytest
import torch
from helpers.unequal_blocks import BATCH, job, rows
from torch import nn

from brim.frontier.block_counter import count_step
from brim.frontier.recomputed_trace import passes_in, saved_bytes
from brim.hardware.peaks import USUAL
from brim.memory.forecast import make_job, make_setting


@pytest.fixture(scope="module")
def setting():
    return make_setting("NVIDIA H200", None, None)


@pytest.fixture(scope="module")
def counted(setting):
    return count_step(job(), BATCH, setting, USUAL)


def test_blocks_are_told_by_what_they_hold_and_what_they_take(counted):
    assert [block.name for block in counted.blocks] == ["1.0", "1.1", "1.2"]
    events = counted.trace.events
    saved = saved_bytes(events, passes_in(counted.trace.marks, len(events)), counted.owner, counted.outputs, 3)
    assert saved[1] > saved[2] > saved[0] > 0
    assert counted.blocks[1].gpu > counted.blocks[2].gpu > counted.blocks[0].gpu > 0


def test_where_blocks_are_decided_already_none_are_told(setting):
    assert count_step(job(checkpointing=True), 64, setting, USUAL).blocks == ()


def test_what_a_block_hands_on_and_what_it_leaves_in_a_cache_is_known(setting):
    class Remembering(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Keeping(), Keeping()])

        def forward(self, x):
            cache = {"kept": []}
            for block in self.blocks:
                x = block(x, cache)
            return x

    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x, cache):
            cache["kept"].append(torch.tanh(x))
            return self.linear(cache["kept"][-1]).relu()

    made = count_step(make_job(Remembering, rows, lambda output: output.mean()), 64, setting, USUAL)
    operators = lambda numbers: {made.trace.storages[number].operator for number in numbers}  # noqa: E731
    assert operators(made.left) == {"aten.tanh.default"}
    assert operators(made.outputs) == {"aten.relu.default"}
