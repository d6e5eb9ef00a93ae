"""Where the peak is, what is alive there, and whose it is."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from brim.memory.allocator.allocator import CachingAllocator, OutOfMemory
from brim.memory.allocator.peak import MOST_HOLDERS, PARTS, find_peak
from brim.memory.trace.trace import DEATH, Storage, Trace

MIB = 1 << 20


def trace_of(*happens) -> Trace:
    """("forward",) enters a phase, (name, MiB[, kind]) brings a storage to life, (name,) ends it."""
    trace, numbers, phase = Trace(), {}, "move"
    for name, *more in happens:
        if name in numbers and not more:
            trace.events.append((numbers[name], DEATH))
        elif not more:
            phase = name
            trace.marks.append((len(trace.events), name))
        else:
            numbers[name] = len(trace.storages)
            size = int(more[0] * MIB)
            trace.storages.append(Storage(size, f"aten.{name}.default", phase, name, "", *more[1:]))
            trace.events.append((numbers[name], size))
    return trace


STEP = trace_of(
    ("move",), ("weight", 4, "parameters"), ("mean", 2, "buffers"), ("batch",), ("x", 3, "batch"), ("forward",),
    ("kept", 16), ("scratch", 10), ("scratch",), ("space", 8, "workspace"), ("backward",), ("gradient", 4, "gradients"),
    ("flow", 12), ("kept",), ("flow",), ("optimizer",), ("moment", 4, "optimizer"),
)  # fmt: skip


def test_the_peak_is_the_moment_when_most_is_allocated() -> None:
    peak = find_peak(STEP)
    assert peak.allocated == (4 + 2 + 3 + 16 + 8 + 4 + 12) * MIB
    assert peak.phase == "backward"


def test_parts_at_the_peak() -> None:
    parts = {part: size // MIB for part, size in find_peak(STEP).parts.items() if part != "fragmentation"}
    assert parts == {
        "parameters": 6, "gradients": 4, "optimizer": 0, "average": 0, "activations": 19, "cache": 0, "temporary": 12,
        "workspace": 8, "context": 0,
    }  # fmt: skip


def test_fragmentation_is_what_is_reserved_beyond_the_peak() -> None:
    peak = find_peak(STEP)
    assert tuple(peak.parts) == PARTS
    assert peak.parts["fragmentation"] == peak.reserved - peak.allocated
    assert sum(peak.parts.values()) == peak.reserved


def test_what_dies_in_the_forward_pass_is_temporary_and_what_outlives_it_an_activation() -> None:
    trace = trace_of(("batch",), ("forward",), ("short", 8), ("long", 6), ("short",), ("backward",), ("long",))
    parts = find_peak(trace).parts
    assert (parts["temporary"], parts["activations"]) == (8 * MIB, 6 * MIB)


def test_what_the_last_forward_pass_left_behind_is_no_activation_of_the_next() -> None:
    step = (("batch",), ("forward",), ("log", 8), ("log",), ("backward",))
    assert find_peak(trace_of(*step, *step)).parts["activations"] == 0


def test_caches_have_a_part_of_their_own() -> None:
    parts = find_peak(trace_of(("batch",), ("forward",), ("table", 8, "cache"))).parts
    assert parts["cache"] == 8 * MIB


def test_holders_are_the_largest_first() -> None:
    holders = find_peak(STEP).holders
    assert [(holder.size // MIB, holder.module) for holder in holders[:3]] == [(16, "kept"), (12, "flow"), (8, "space")]
    assert (holders[0].kind, holders[0].operator) == ("activations", "kept")


def test_there_are_not_too_many_holders() -> None:
    trace = trace_of(("batch",), ("forward",), *((f"s{n}", 1) for n in range(50)))
    assert len(find_peak(trace).holders) == MOST_HOLDERS


def test_the_first_of_equal_peaks_is_taken() -> None:
    trace = trace_of(("batch",), ("forward",), ("a", 8), ("a",), ("backward",), ("b", 8))
    assert find_peak(trace).phase == "forward"


def test_under_a_cap_less_is_reserved_and_the_same_allocated() -> None:
    trace = trace_of(("batch",), ("forward",), ("a", 30), ("a",), ("b", 40))
    free, capped = find_peak(trace), find_peak(trace, cap=40 * MIB)
    assert (free.reserved // MIB, capped.reserved // MIB) == (70, 40)
    assert free.allocated == capped.allocated == 40 * MIB


def test_a_trace_that_does_not_fit_under_the_cap_is_out_of_memory() -> None:
    with pytest.raises(OutOfMemory):
        find_peak(STEP, cap=40 * MIB)


@given(st.lists(st.tuples(st.integers(0, 30 * MIB), st.integers(0, 5)), min_size=1, max_size=30), st.booleans())
def test_it_agrees_with_the_allocator(sizes: list[tuple[int, int]], expandable: bool) -> None:
    """Each storage dies after as many births as its second number says."""
    trace = Trace(marks=[(0, "forward")])
    allocator = CachingAllocator(expandable=expandable)
    for number, (size, _) in enumerate(sizes):
        for old in range(number):
            if old + sizes[old][1] + 1 == number:
                trace.events.append((old, DEATH))
                allocator.release(old)
        trace.storages.append(Storage(size, "operator", "forward"))
        trace.events.append((number, size))
        allocator.allocate(number, size)
    peak = find_peak(trace, expandable)
    assert (peak.allocated, peak.reserved) == (allocator.peak_allocated, allocator.peak_reserved)
    assert sum(peak.parts.values()) == peak.reserved
