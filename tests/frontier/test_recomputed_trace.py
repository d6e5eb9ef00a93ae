"""Blocks computed again, seen without a new trace: beside the trace of a model that does so."""

import pytest
from helpers.unequal_blocks import BATCH, job

from brim.frontier.block_counter import count_step
from brim.frontier.recomputed_trace import live_peak, passes_in, recomputed_events
from brim.hardware.peaks import USUAL
from brim.memory.forecast import make_setting, trace_on
from brim.memory.trace.trace import DEATH


@pytest.fixture(scope="module")
def setting():
    return make_setting("NVIDIA H200", None, None)


@pytest.fixture(scope="module")
def counted(setting):
    return count_step(job(), BATCH, setting, USUAL)


def recomputed(made, chosen):
    passes = passes_in(made.trace.marks, len(made.trace.events))
    return recomputed_events(made.trace.events, passes, made.owner, made.outputs, chosen)


@pytest.mark.matrix(2)
@pytest.mark.parametrize("chosen", [(), (0,), (1,), (0, 2), (0, 1, 2)], ids=str)
def test_the_peak_is_that_of_the_model_that_computes_them_again(setting, counted, chosen):
    names = [counted.blocks[place].name for place in chosen]
    true = trace_on(job(checkpointing=names or None), BATCH, setting)
    assert live_peak(recomputed(counted, chosen)) == pytest.approx(live_peak(true.events), rel=0.03)


def odd(events):
    """Storages that are born while they live, or die while they do not."""
    alive, found = set(), []
    for number, size in events:
        if (number in alive) != (size == DEATH):
            found.append(number)
        (alive.discard if size == DEATH else alive.add)(number)
    return found


def test_every_storage_is_born_before_it_dies_and_dies_once(counted):
    assert odd(recomputed(counted, (0, 1, 2))) == odd(counted.trace.events)  # the last batch outlives the trace
