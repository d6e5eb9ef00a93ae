"""A model of torch's caching allocator on CUDA: which bytes it asks the card for, given what the program asks it for.

The rules are those of ``c10/cuda/CUDACachingAllocator.cpp``, unchanged from torch 2.0 to 2.13 where this uses them:

- a request is rounded up to 512 bytes; up to 1 MiB it comes out of the small pool, above out of the large one;
- the smallest free block that holds it is taken, the lowest address among equals, and split if the rest is worth it;
- without one the card is asked for a segment: 2 MiB for the small pool, 20 MiB for requests under 10 MiB, otherwise
  the request rounded up to 2 MiB;
- a block that is freed merges with its free neighbours in the segment, and stays with the allocator;
- when the card (or the cap set with ``set_per_process_memory_fraction``) refuses, every segment that is wholly free
  is given back and the request is tried once more.
"""

import bisect
from collections.abc import Collection, Iterable

from brim.memory.allocator.addresses import Addresses
from brim.memory.trace.trace import DEATH

MIB = 1 << 20
SMALLEST_BLOCK = 512
LARGEST_SMALL = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
SMALLEST_OWN_SEGMENT = 10 * MIB
SEGMENT_ROUNDING = 2 * MIB
# Expandable segments are one range of addresses for each pool.
START_OF_RANGE = 1 << 48


class OutOfMemory(Exception):
    """The replayed program does not fit under the cap."""

    def __init__(self, storage: int, size: int, reserved: int) -> None:
        super().__init__(f"{size} bytes asked for with {reserved} reserved")
        self.storage = storage
        self.size = size
        self.reserved = reserved


class _Block:
    __slots__ = ("address", "following", "free", "preceding", "segment", "size", "small")

    def __init__(self, address: int, size: int, small: bool, segment: int) -> None:
        self.address = address
        self.size = size
        self.small = small
        self.segment = segment
        self.free = True
        self.preceding: _Block | None = None
        self.following: _Block | None = None


def round_up(size: int, step: int) -> int:
    return -(-size // step) * step


def rounded(size: int) -> int:
    """What a request of so many bytes takes of a block."""
    return round_up(size, SMALLEST_BLOCK)


class CachingAllocator:
    """Replays allocations and frees; says what is allocated and reserved, now and at the peak.

    >>> allocator = CachingAllocator()
    >>> allocator.allocate(1, 3 * MIB)
    >>> allocator.allocated // MIB, allocator.reserved // MIB
    (3, 20)
    """

    def __init__(self, cap: int | None = None, expandable: bool = False) -> None:
        self.cap = cap
        self.expandable = expandable
        self.allocated = self.peak_allocated = 0
        self.reserved = self.peak_reserved = 0
        self.retries = 0
        self.free_blocks: dict[bool, list[tuple[int, int, _Block]]] = {True: [], False: []}
        self.used_blocks: dict[int, _Block] = {}
        self._segments = 0
        self._last: dict[bool, _Block] = {}
        self._addresses = Addresses()

    def allocate(self, storage: int, size: int, optional: bool = False) -> None:
        """A storage comes to life. Nothing is kept for an empty one, nor for an ``optional`` one without room."""
        if size <= 0:
            return
        size = rounded(size)
        small = size <= LARGEST_SMALL
        try:
            block = self._get_free_block(size, small) or self._alloc_block(storage, size, small)
        except OutOfMemory:
            if optional:
                return
            raise
        rest = block.size - size
        if rest >= SMALLEST_BLOCK if small or self.expandable else rest > LARGEST_SMALL:
            self._split(block, size)
        block.free = False
        self.used_blocks[storage] = block
        self.allocated += block.size
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated

    def release(self, storage: int) -> None:
        """A storage dies. One that was empty, or never seen, is nothing to free."""
        block = self.used_blocks.pop(storage, None)
        if block is None:
            return
        self.allocated -= block.size
        for neighbour in (block.preceding, block.following):
            if neighbour is not None and neighbour.free:
                self._remove_free(neighbour)
                self._merge(block, neighbour)
        block.free = True
        self._add_free(block)

    def living(self) -> dict[int, int]:
        """What each living storage takes of its block, the rest that was not worth splitting included."""
        return {storage: block.size for storage, block in self.used_blocks.items()}

    def _get_free_block(self, size: int, small: bool) -> _Block | None:
        pool = self.free_blocks[small]
        place = bisect.bisect_left(pool, (size, -1))
        if self.expandable and place + 1 < len(pool) and pool[place][2] is self._last.get(small):
            place += 1  # the block at the end can grow, so it counts as larger than any other
        return pool.pop(place)[2] if place < len(pool) else None

    def _alloc_block(self, storage: int, size: int, small: bool) -> _Block:
        block = self._map(size, small)
        if block is None:
            self.retries += 1
            self._release_cached_blocks()
            block = self._map(size, small)
        if block is None:
            raise OutOfMemory(storage, size, self.reserved)
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    def _map(self, size: int, small: bool) -> _Block | None:
        """A new segment, or the growing one made longer; None when that would go over the cap."""
        if self.expandable:
            return self._grow(size, small)
        if small:
            wanted = SMALL_SEGMENT
        else:
            wanted = LARGE_SEGMENT if size < SMALLEST_OWN_SEGMENT else round_up(size, SEGMENT_ROUNDING)
        if self.cap is not None and self.reserved + wanted > self.cap:
            return None
        self.reserved += wanted
        self._segments += 1
        return _Block(self._addresses.allocate(wanted), wanted, small, self._segments)

    def _grow(self, size: int, small: bool) -> _Block | None:
        """Expandable segments: one address range for each pool, mapped from its end in pieces of a segment's size."""
        piece = SMALL_SEGMENT if small else LARGE_SEGMENT
        last = self._last.get(small)
        at_hand = last.size if last is not None and last.free else 0
        wanted = round_up(size - at_hand, piece)
        if self.cap is not None and self.reserved + wanted > self.cap:
            return None
        self.reserved += wanted
        if last is not None and last.free:
            self._remove_free(last)
            last.size += wanted
            return last
        address = START_OF_RANGE if last is None else last.address + last.size
        block = _Block(address, wanted, small, 0)
        block.preceding = last
        if last is not None:
            last.following = block
        self._last[small] = block
        return block

    def _release_cached_blocks(self) -> None:
        for small, pool in self.free_blocks.items():
            kept = []
            for size, address, block in pool:
                if self.expandable:
                    # Whole pieces at the end go back; holes in the middle are unmapped too, which this leaves alone.
                    if block is self._last.get(small):
                        piece = SMALL_SEGMENT if small else LARGE_SEGMENT
                        shrink = size // piece * piece
                        self.reserved -= shrink
                        block.size -= shrink
                        size = block.size
                    kept.append((size, address, block))
                elif block.preceding is None and block.following is None:
                    self.reserved -= size
                    self._addresses.free(address, size)
                else:
                    kept.append((size, address, block))
            pool[:] = sorted(kept, key=lambda entry: entry[:2])

    def _split(self, block: _Block, size: int) -> None:
        rest = _Block(block.address + size, block.size - size, block.small, block.segment)
        rest.preceding, rest.following = block, block.following
        if block.following is not None:
            block.following.preceding = rest
        block.following, block.size = rest, size
        if self._last.get(block.small) is block:
            self._last[block.small] = rest
        self._add_free(rest)

    def _merge(self, block: _Block, neighbour: _Block) -> None:
        block.size += neighbour.size
        if neighbour is block.preceding:
            block.address = neighbour.address
            block.preceding = neighbour.preceding
            if block.preceding is not None:
                block.preceding.following = block
        else:
            block.following = neighbour.following
            if block.following is not None:
                block.following.preceding = block
            if self._last.get(block.small) is neighbour:
                self._last[block.small] = block

    def _add_free(self, block: _Block) -> None:
        bisect.insort(self.free_blocks[block.small], (block.size, block.address, block))

    def _remove_free(self, block: _Block) -> None:
        pool = self.free_blocks[block.small]
        place = bisect.bisect_left(pool, (block.size, block.address))
        pool.pop(place)


def replay(
    events: Iterable[tuple[int, int]], cap: int | None = None, expandable: bool = False, optional: Collection[int] = ()
) -> CachingAllocator:
    """Run the events of a trace through a fresh allocator. Raises `OutOfMemory` where they do not fit under the cap.

    ``optional``: the storages that are left out where there is no room for them.
    """
    allocator = CachingAllocator(cap, expandable)
    for storage, size in events:
        if size == DEATH:
            allocator.release(storage)
        else:
            allocator.allocate(storage, size, storage in optional)
    return allocator
