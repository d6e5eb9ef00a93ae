"""Traces between two that were made."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import nn

from brim.hardware.cards import H200
from brim.memory.allocator.peak import find_peak
from brim.memory.forecast import make_job
from brim.memory.planning.family import TraceFamily, fits
from brim.memory.trace.steps import trace_steps
from brim.memory.trace.trace import DEATH, Storage, Trace

MIB = 1 << 20


def family_of(*lines: tuple[int, int, str]) -> TraceFamily:
    """One storage for each (bytes at batch 0, bytes a sample, kind); all of them die at the end but the first."""

    def make(n: int) -> Trace:
        storages = [Storage(base + growth * n, "operator", "forward", kind=kind) for base, growth, kind in lines]
        born = [(number, storage.size) for number, storage in enumerate(storages)]
        return Trace(storages, [*born, *((number, DEATH) for number in range(1, len(lines)))], [(0, "forward")])

    return TraceFamily(make)


def without_workspaces(trace: Trace) -> list[int]:
    return [size for number, size in trace.events if trace.storages[number].kind != "workspace"]


@given(
    st.lists(st.tuples(st.integers(0, MIB), st.integers(0, MIB)), min_size=1, max_size=8),
    st.integers(1, 50),
    st.integers(1, 50),
    st.integers(1, 500),
)
def test_straight_lines_are_followed_to_the_byte(sizes, low: int, more: int, at: int) -> None:
    family = family_of(*((base, growth, "") for base, growth in sizes))
    line = family.line_through(low, low + more)
    assert line is not None
    assert line.events_at(at) == family.trace(at).events


def test_a_trace_is_made_once() -> None:
    made: list[int] = []
    family = TraceFamily(lambda n: made.append(n) or Trace())
    assert family.trace(3) is family.trace(3)
    assert made == [3]


@pytest.mark.parametrize(
    ("traced", "size", "neighbour"),
    [([], 80, 70), ([60, 65], 80, 65), ([79], 80, 70), ([59, 100], 80, 70), ([], 2, 1), ([], 1, 1)],
)
def test_a_line_starts_where_there_is_a_trace_already_if_it_is_neither_near_nor_far(traced, size, neighbour) -> None:
    family = TraceFamily(lambda n: Trace())
    for other in traced:
        family.trace(other)
    assert family.neighbour(size) == neighbour


def test_another_sequence_of_events_gives_no_line() -> None:
    def make(n: int) -> Trace:
        count = 2 if n < 10 else 3
        storages = [Storage(n, "operator", "forward") for _ in range(count)]
        return Trace(storages, [(number, n) for number in range(count)])

    family = TraceFamily(make)
    assert family.line_through(2, 12) is None
    assert family.line_through(2, 4) is not None


def test_a_death_in_the_place_of_a_birth_gives_no_line() -> None:
    orders = {1: [(0, 8), (1, 8), (0, DEATH)], 2: [(0, 8), (0, DEATH), (1, 8)]}
    family = TraceFamily(lambda n: Trace([Storage(8, "operator", "forward")] * 2, orders[n]))
    assert family.line_through(1, 2) is None


def test_workspaces_are_those_of_the_larger_one_in_proportion() -> None:
    family = family_of((100, 10, ""), (0, 7, "workspace"))
    assert family.line_through(2, 10).events_at(20) == [(0, 300), (1, 140), (1, DEATH)]


def test_workspaces_that_stay_do_not_grow() -> None:
    family = family_of((4096, 0, "workspace"), (0, 5, ""))
    assert family.line_through(2, 10).events_at(20)[0] == (0, 4096)


def test_workspaces_may_come_and_go() -> None:
    """A kernel that takes a workspace at one size and none at another does the same things all the same."""
    with_one, without = family_of((0, 10, ""), (0, 1, "workspace")), family_of((0, 10, ""))
    family = TraceFamily(lambda n: (with_one if n > 5 else without).trace(n))
    assert family.line_through(2, 10) is not None


def test_sizes_do_not_fall_below_nothing() -> None:
    shrinking = TraceFamily(lambda n: Trace([Storage(10 - n, "operator", "forward")], [(0, 10 - n)]))
    assert shrinking.line_through(1, 9).events_at(50) == [(0, 0)]


def test_a_job_between_two_sizes_is_what_a_trace_of_it_says() -> None:
    job = make_job(
        lambda: nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 64)), lambda n: ((torch.randn(n, 64),), {})
    )
    family = TraceFamily(lambda n: trace_steps(job, n, H200, (2, 11)))
    line, real, large = family.line_through(100, 5000), family.trace(1700), family.trace(5000)
    alike = Trace(large.storages, line.events_at(1700), large.marks)
    assert find_peak(alike).allocated == pytest.approx(find_peak(real).allocated, rel=1e-3)
    assert without_workspaces(alike) == without_workspaces(real)


@pytest.mark.parametrize(("cap", "answer"), [(39, False), (40, True), (400, True)])
def test_fits_means_that_the_replay_ends(cap: int, answer: bool) -> None:
    assert fits([(0, 30 * MIB), (0, DEATH), (1, 40 * MIB)], cap * MIB) is answer


def test_fits_knows_expandable_segments() -> None:
    """Two holes in two segments against one long one."""
    events = [(n, 5 * MIB) for n in range(12)] + [(n, DEATH) for n in range(2, 6)] + [(12, 19 * MIB)]
    assert not fits(events, 60 * MIB)
    assert fits(events, 60 * MIB, expandable=True)


def test_workspaces_that_find_no_room_are_left_out_where_the_kernel_can_do_without() -> None:
    events = [(0, 60 * MIB), (1, 50 * MIB), (1, DEATH), (2, 20 * MIB)]
    assert not fits(events, 100 * MIB)
    assert fits(events, 100 * MIB, optional={1})
    assert not fits(events, 100 * MIB, optional={2})
    trace = Trace([Storage(size, "made", "forward", optional=number == 1) for number, size in events if size != DEATH])
    assert trace.optional == {1}
