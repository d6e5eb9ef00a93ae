"""The share of a forward pass that lies outside of blocks, on a clock that moves as the modules say."""

import pytest
import torch
from helpers.compiled_training import assert_same, decision, trained
from torch import nn
from torch._dynamo.utils import counters

from brim.engine.compiled import outside_blocks
from brim.engine.compiled.outside_blocks import OutsideBlocks

CPU = torch.device("cpu")


class Takes(nn.Module):
    """A module that takes so long."""

    def __init__(self, clock, seconds):
        super().__init__()
        self.clock, self.seconds = clock, seconds

    def forward(self, x):
        self.clock[0] += self.seconds
        return x


@pytest.fixture
def clock(monkeypatch):
    now = [5.0]
    monkeypatch.setattr(outside_blocks.time, "perf_counter", lambda: now[0])
    return now


def test_it_is_what_lies_before_between_and_after_the_blocks(clock):
    model = nn.Sequential(*[Takes(clock, seconds) for seconds in (1, 3, 2, 3, 1)])
    outside = OutsideBlocks([model[1], model[3]], CPU)
    with outside.watched():
        model(torch.ones(1))
    assert outside.share == pytest.approx(4 / 10)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model)


def test_blocks_that_are_not_called_take_nothing(clock):
    outside = OutsideBlocks([Takes(clock, 1)], CPU)
    with outside.watched():
        clock[0] += 2
    assert outside.share == 1.0


def test_no_hook_stays_after_an_error(clock):
    block = Takes(clock, 1)
    with pytest.raises(KeyError), OutsideBlocks([block], CPU).watched():
        raise KeyError
    assert not block._forward_hooks and not block._forward_pre_hooks


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_little_around_the_blocks_is_left_as_it_is_and_much_is_compiled_too(tmp_path, eager_to_try, monkeypatch, share):
    """The same training either way; torch counts what is compiled."""
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(OutsideBlocks, "share", share)
    eager, _ = trained(False, tmp_path / "eager")
    found, _ = trained("auto", tmp_path / "auto")
    assert decision(tmp_path / "auto")["used"]
    assert (counters["stats"]["unique_graphs"] == 1) == (share == 0.1)
    assert_same(eager, found)
