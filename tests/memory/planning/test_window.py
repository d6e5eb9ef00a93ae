"""The batches of a step on the card."""

import pytest
import torch
from torch import nn

from brim.errors import ConfigError
from brim.memory.allocator.peak import find_peak
from brim.memory.forecast import make_job, make_setting, trace_on
from brim.memory.planning.window import StepBatches, batch_tensors, family_of, sliced_family_of, with_window
from brim.memory.trace.trace import DEATH, Storage, Trace

SETTING = make_setting("NVIDIA H200", "2.11", False)
MIB = 1 << 20
SAMPLE = 1024 * 4  # bytes


def job():
    return make_job(lambda: nn.Linear(1024, 8), lambda n: ((torch.empty(n, 1024),), {}))


def two_steps():
    """Two steps of two passes each; every pass has a batch of its own, which goes when the next one has come."""
    storages, events, marks, batch = [], [], [], None
    for _ in range(2):
        for _ in range(2):
            marks.append((len(events), "batch"))
            storages.append(Storage(5, "batch", "batch", kind="batch"))
            events += [(len(storages) - 1, 5), *([] if batch is None else [(batch, DEATH)])]
            batch = len(storages) - 1
            marks.append((len(events), "forward"))
            storages.append(Storage(7, "mm", "forward"))
            events += [(len(storages) - 1, 7), (len(storages) - 1, DEATH)]
        marks.append((len(events), "optimizer"))
    return Trace(storages, events, marks, ["a note"], True)


def test_a_window_comes_once_a_step_and_the_last_one_goes_after_it():
    made = with_window(two_steps(), [30, 40])
    sizes = [(made.storages[number].size, size == DEATH) for number, size in made.events]
    window, forward = [(30, False), (40, False)], [(7, False), (7, True)]
    assert sizes == [*window, *forward, *forward, *window, (30, True), (40, True), *forward, *forward]
    assert (made.notes, made.has_batch_norm) == (["a note"], True)
    assert [phase for _, phase in made.marks] == [phase for _, phase in two_steps().marks]
    assert [index for index, phase in made.marks if phase == "optimizer"] == [6, 14]


def test_a_window_of_the_batch_itself_changes_nothing():
    trace = trace_on(job(), 4096, SETTING)
    assert batch_tensors(trace) == [4096 * SAMPLE]
    again, before = find_peak(with_window(trace, batch_tensors(trace))), find_peak(trace)
    assert (again.allocated, again.reserved, again.parts) == (before.allocated, before.reserved, before.parts)


@pytest.mark.parametrize("batches", [2, 5])
def test_all_batches_of_a_step_lie_on_the_card(batches):
    steps = (StepBatches(accumulation=n) for n in (1, batches))
    one, several = (find_peak(family_of(job(), SETTING, step).trace(16_384)).allocated for step in steps)
    batch = 16_384 * SAMPLE
    assert several - one == pytest.approx(2 * (batches - 1) * batch, abs=MIB)  # twice, while they are copied


def test_batches_that_wait_for_their_step_lie_there_too():
    steps = (StepBatches(prefetched=n) for n in (0, 2))
    plain, waiting = (find_peak(family_of(job(), SETTING, step).trace(16_384)).allocated for step in steps)
    assert waiting - plain == pytest.approx(2 * 2 * 16_384 * SAMPLE, abs=MIB)


def test_slices_lie_beside_the_whole_window():
    made = find_peak(sliced_family_of(job(), SETTING, [64 * MIB, 32 * MIB]).trace(8))
    plain = find_peak(trace_on(job(), 8, SETTING))
    assert made.allocated - plain.allocated == pytest.approx(2 * 96 * MIB, abs=MIB)


@pytest.mark.parametrize("wrong", [{"accumulation": 0}, {"micro_batch": 0}, {"prefetched": -1}], ids=str)
def test_bad_numbers_are_refused(wrong):
    with pytest.raises(ConfigError, match="must be a whole number of at least 1"):
        StepBatches.of_job({"batch_size": 8, **wrong})
