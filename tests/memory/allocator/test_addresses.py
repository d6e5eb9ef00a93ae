"""Where segments lie: in chunks that go down, and in the room that is left."""

import hypothesis.strategies as st
from hypothesis import given

from brim.memory.allocator.addresses import BESIDE_THE_CONTEXT, CHUNK, MIB, Addresses


@given(st.lists(st.integers(1, 300), max_size=40))
def test_segments_never_overlap(sizes: list[int]) -> None:
    addresses, taken = Addresses(), []
    for size in sizes:
        start = addresses.allocate(size * MIB)
        assert all(start + size * MIB <= other or end <= start for other, end in taken)
        taken.append((start, start + size * MIB))


def test_the_places_beside_the_context_are_filled_first() -> None:
    addresses = Addresses()
    below, above = BESIDE_THE_CONTEXT
    assert addresses.allocate(400 * MIB) == below[0]
    assert addresses.allocate(20 * MIB) == above[0]
    assert addresses.allocate(16 * MIB) == below[0] + 400 * MIB
    assert addresses.allocate(20 * MIB) == below[0] - CHUNK


def test_chunks_go_down_and_the_lowest_room_is_filled_first() -> None:
    addresses = Addresses()
    addresses.allocate(416 * MIB)
    first, second = addresses.allocate(40 * MIB), addresses.allocate(40 * MIB)
    assert first - second == 2 * CHUNK
    assert addresses.allocate(20 * MIB) == second + 40 * MIB
    assert addresses.allocate(20 * MIB) == first + 40 * MIB


def test_what_goes_back_is_used_again() -> None:
    addresses = Addresses()
    first = addresses.allocate(640 * MIB)
    addresses.allocate(640 * MIB)
    addresses.free(first, 640 * MIB)
    assert addresses.allocate(640 * MIB) == first
