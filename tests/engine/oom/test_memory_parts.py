"""The parts of a run's peak add up to it."""

from hypothesis import given
from hypothesis import strategies as st

from brim.engine.oom.memory_parts import CAPTURED, EVALUATION, RESIDENT, STEPS, MemoryParts

PARTS = st.sampled_from([STEPS, CAPTURED, EVALUATION])


@given(st.lists(st.tuples(PARTS, st.integers(0, 1 << 40))), st.integers(0, 1 << 41))
def test_parts_add_up_to_the_peak_in_whatever_order_they_come(course, resident):
    parts = MemoryParts()
    for part, peak in course:
        before = parts.enter(part)
        parts.raise_to(peak)
        parts.leave(before)
    assert sum(parts.sizes.values()) == parts.peak == max((peak for _, peak in course), default=0)
    assert sum(parts.beside(resident).values()) == parts.peak
    assert all(size > 0 for size in parts.beside(resident).values())


def test_data_on_the_card_is_told_apart_from_the_steps():
    parts = MemoryParts()
    parts.raise_to(100)
    assert parts.beside(70) == {STEPS: 30, RESIDENT: 70}
    assert parts.beside(0) == {STEPS: 100}
