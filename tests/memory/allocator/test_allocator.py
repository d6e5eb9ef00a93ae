"""The caching allocator: its documented rules one by one, and what holds for any program."""

from itertools import pairwise
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given

from brim.memory.allocator.allocator import (
    LARGE_SEGMENT,
    MIB,
    SMALL_SEGMENT,
    CachingAllocator,
    OutOfMemory,
    replay,
    round_up,
    rounded,
)

KIB = 1 << 10
SIZES = st.one_of(
    st.integers(0, 4 * KIB), st.integers(1, 3 * MIB), st.integers(MIB - 600, MIB + 600), st.integers(1, 50 * MIB)
)


class Request(NamedTuple):
    """An event of a trace."""

    storage: int
    size: int


@st.composite
def programs(draw: st.DrawFn) -> list[Request]:
    """Storages that come and go in any order; a few live to the end."""
    requests: list[Request] = []
    alive: list[int] = []
    for number in range(draw(st.integers(1, 40))):
        requests.append(Request(number, draw(SIZES)))
        alive.append(number)
        while alive and draw(st.booleans()):
            requests.append(Request(alive.pop(draw(st.integers(0, len(alive) - 1))), -1))
    return requests


def play(allocator: CachingAllocator, request: Request) -> None:
    if request.size >= 0:
        allocator.allocate(request.storage, request.size)
    else:
        allocator.release(request.storage)


def blocks_of(allocator: CachingAllocator) -> list:
    free = [block for pool in allocator.free_blocks.values() for _, _, block in pool]
    return [*free, *allocator.used_blocks.values()]


def all_blocks(allocator: CachingAllocator) -> list[tuple[bool, int, int, bool]]:
    """(pool, address, size, free) of every block, in the order of addresses."""
    free = [block for pool in allocator.free_blocks.values() for _, _, block in pool]
    return sorted(
        (block.small, block.address, block.size, block.free) for block in [*free, *allocator.used_blocks.values()]
    )


def starts_of_segments(allocator: CachingAllocator) -> set[int]:
    """Segments may touch, and are not merged."""
    return {block.address for block in blocks_of(allocator) if block.preceding is None}


def ends(requests: list[Request]) -> list[Request]:
    """What frees everything that a program leaves alive."""
    alive: dict[int, None] = {}
    for request in requests:
        if request.size >= 0:
            alive[request.storage] = None
        else:
            alive.pop(request.storage)
    return [Request(number, -1) for number in alive]


# -- what holds for any program ----------------------------------------------------------------------------------------


@given(programs(), st.booleans())
def test_allocated_is_what_lives_and_peaks_are_maxima(program: list[Request], expandable: bool) -> None:
    allocator = CachingAllocator(expandable=expandable)
    alive: set[int] = set()
    top_allocated = top_reserved = 0
    for request in program:
        play(allocator, request)
        (alive.add if request.size > 0 else alive.discard)(request.storage)
        assert allocator.living().keys() == alive
        assert allocator.allocated == sum(allocator.living().values()) <= allocator.reserved
        top_allocated, top_reserved = max(top_allocated, allocator.allocated), max(top_reserved, allocator.reserved)
        assert (allocator.peak_allocated, allocator.peak_reserved) == (top_allocated, top_reserved)


@given(programs(), st.booleans())
def test_a_storage_gets_its_bytes_and_not_much_more(program: list[Request], expandable: bool) -> None:
    allocator = CachingAllocator(expandable=expandable)
    for request in program:
        play(allocator, request)
        if request.size > 0:
            spare = allocator.living().get(request.storage, 0) - rounded(request.size)
            assert 0 <= spare <= (0 if expandable or rounded(request.size) <= MIB else MIB)


@given(programs(), st.booleans())
def test_blocks_never_overlap_and_cover_what_is_reserved(program: list[Request], expandable: bool) -> None:
    allocator = CachingAllocator(expandable=expandable)
    for request in program:
        play(allocator, request)
        blocks = all_blocks(allocator)
        for (pool, address, size, _), (next_pool, next_address, _, _) in pairwise(blocks):
            assert pool != next_pool or address + size <= next_address
        assert sum(size for _, _, size, _ in blocks) == allocator.reserved


@given(programs(), st.booleans())
def test_free_neighbours_are_merged(program: list[Request], expandable: bool) -> None:
    allocator = replay(program, expandable=expandable)
    blocks = all_blocks(allocator)
    starts = starts_of_segments(allocator)
    for (pool, address, size, free), (next_pool, next_address, _, next_free) in pairwise(blocks):
        touch = pool == next_pool and address + size == next_address and next_address not in starts
        assert not (touch and free and next_free)


@given(programs())
def test_freeing_everything_leaves_whole_segments(program: list[Request]) -> None:
    allocator = replay([*program, *ends(program)])
    assert allocator.allocated == 0
    for small, _, size, free in all_blocks(allocator):
        assert free
        assert size == SMALL_SEGMENT if small else size % SMALL_SEGMENT == 0 and size >= 10 * MIB
    assert sum(size for _, _, size, _ in all_blocks(allocator)) == allocator.reserved


@given(programs())
def test_freeing_everything_leaves_one_block_a_pool_when_segments_expand(program: list[Request]) -> None:
    allocator = replay([*program, *ends(program)], expandable=True)
    blocks = all_blocks(allocator)
    assert len(blocks) <= 2
    assert all(free and size % (SMALL_SEGMENT if small else LARGE_SEGMENT) == 0 for small, _, size, free in blocks)


@given(programs(), st.integers(1, 200), st.booleans())
def test_a_cap_is_never_passed(program: list[Request], mebibytes: int, expandable: bool) -> None:
    allocator = CachingAllocator(mebibytes * MIB, expandable)
    try:
        for request in program:
            play(allocator, request)
    except OutOfMemory as error:
        assert error.size > 0
        assert error.reserved == allocator.reserved
    assert allocator.allocated <= allocator.reserved <= allocator.peak_reserved <= mebibytes * MIB
    assert sum(size for _, _, size, _ in all_blocks(allocator)) == allocator.reserved


@given(programs(), st.booleans())
def test_what_fits_without_a_cap_fits_under_a_cap_of_its_peak(program: list[Request], expandable: bool) -> None:
    free = replay(program, expandable=expandable)
    capped = replay(program, free.peak_reserved, expandable)
    assert (capped.peak_allocated, capped.peak_reserved) == (free.peak_allocated, free.peak_reserved)
    assert capped.retries == 0


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 30))
def test_round_up(size: int, step: int) -> None:
    assert 0 <= round_up(size, step) - size < step
    assert round_up(size, step) % step == 0


# -- the rules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "taken"), [(1, 512), (512, 512), (513, 1024), (MIB - 1, MIB), (MIB, MIB)])
def test_requests_are_rounded_to_512_bytes(size: int, taken: int) -> None:
    assert replay([Request(0, size)]).allocated == taken


def test_nothing_is_kept_for_an_empty_storage() -> None:
    allocator = replay([Request(0, 0), Request(0, -1), Request(7, -1)])
    assert (allocator.allocated, allocator.reserved, allocator.living().get(0, 0)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (21 * MIB, 22 * MIB),
    ],
)
def test_segments(size: int, segment: int) -> None:
    assert replay([Request(0, size)]).reserved == segment


@pytest.mark.parametrize(
    ("size", "taken"), [(9 * MIB, 9 * MIB), (19 * MIB, 20 * MIB), (19 * MIB - 512, 19 * MIB - 512)]
)
def test_a_large_block_is_split_when_more_than_a_mebibyte_is_left(size: int, taken: int) -> None:
    """The segment of 20 MiB is left by a first request."""
    assert replay([Request(0, 3 * MIB), Request(0, -1), Request(1, size)]).living().get(1, 0) == taken


def test_expandable_segments_split_to_the_last_block() -> None:
    assert replay([Request(0, 20 * MIB - 512)], expandable=True).living().get(0, 0) == 20 * MIB - 512


def test_small_and_large_requests_do_not_share_segments() -> None:
    allocator = replay([Request(0, 3 * MIB), Request(1, 1000), Request(1, -1), Request(2, 3 * MIB)])
    assert allocator.reserved == 22 * MIB


def test_the_smallest_block_that_holds_it_is_taken() -> None:
    big, middle, small = Request(0, 40 * MIB), Request(1, 14 * MIB), Request(2, 12 * MIB)
    freed = [Request(number, -1) for number in range(3)]
    allocator = replay([big, middle, small, *freed, Request(3, 13 * MIB)])
    # Not out of the 40: the 14 is left whole, as one MiB is not worth a split.
    assert allocator.living()[3] == 14 * MIB
    assert allocator.reserved == 66 * MIB


def test_the_lowest_address_among_equals_is_taken() -> None:
    allocator = replay([Request(n, 600) for n in range(4)] + [Request(2, -1), Request(0, -1), Request(9, 600)])
    assert allocator.used_blocks[9].address < allocator.used_blocks[1].address


def test_a_freed_block_merges_with_both_neighbours() -> None:
    parts = [Request(n, 5 * MIB) for n in range(4)]
    allocator = replay([*parts, Request(0, -1), Request(2, -1), Request(1, -1), Request(9, 15 * MIB)])
    assert allocator.reserved == 20 * MIB


def test_a_hole_in_the_middle_is_not_enough() -> None:
    parts = [Request(n, 5 * MIB) for n in range(4)]
    allocator = replay([*parts, Request(0, -1), Request(2, -1), Request(9, 9 * MIB)])
    assert allocator.reserved == 40 * MIB


# -- caps --------------------------------------------------------------------------------------------------------------


def test_over_the_cap_is_out_of_memory() -> None:
    with pytest.raises(OutOfMemory, match=f"{30 * MIB} bytes asked for with {36 * MIB} reserved") as caught:
        replay([Request(0, 15 * MIB), Request(1, 3 * MIB), Request(5, 30 * MIB)], cap=40 * MIB)
    assert (caught.value.storage, caught.value.size) == (5, 30 * MIB)


def test_free_segments_go_back_before_giving_up() -> None:
    allocator = replay([Request(0, 30 * MIB), Request(0, -1), Request(1, 40 * MIB)], cap=40 * MIB)
    assert (allocator.retries, allocator.reserved, allocator.peak_reserved) == (1, 40 * MIB, 40 * MIB)


def test_segments_in_use_do_not_go_back() -> None:
    half_used = [Request(0, 5 * MIB), Request(1, 5 * MIB), Request(0, -1)]
    with pytest.raises(OutOfMemory):
        replay([*half_used, Request(2, 30 * MIB)], cap=40 * MIB)


def test_without_a_cap_nothing_goes_back() -> None:
    allocator = replay([Request(0, 30 * MIB), Request(0, -1), Request(1, 40 * MIB)])
    assert (allocator.retries, allocator.reserved) == (0, 70 * MIB)


# -- expandable segments -----------------------------------------------------------------------------------------------


def test_an_expandable_segment_grows_from_its_end() -> None:
    grown = [Request(0, 30 * MIB), Request(0, -1), Request(1, 50 * MIB)]
    assert replay(grown).reserved == 80 * MIB
    assert replay(grown, expandable=True).reserved == 60 * MIB


def test_expandable_segments_give_back_whole_pieces_at_the_end() -> None:
    program = [Request(0, 15 * MIB), Request(1, 45 * MIB), Request(1, -1), Request(2, 1000)]
    allocator = replay(program, cap=60 * MIB, expandable=True)
    assert (allocator.retries, allocator.reserved) == (1, 22 * MIB)


def test_the_end_that_can_grow_counts_as_larger_than_any_other_block() -> None:
    parts = [Request(0, 14 * MIB), Request(1, 16 * MIB), Request(0, -1)]  # 14 free, 16 in use, 10 at the end
    allocator = replay([*parts, Request(2, 9 * MIB)], expandable=True)
    assert allocator.used_blocks[2].address < allocator.used_blocks[1].address
