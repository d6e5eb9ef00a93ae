"""Where the driver puts the segments that torch's allocator asks it for.

Among free blocks of the same size the allocator takes the one at the lowest address, so the order of segments in memory
decides which hole a request falls into, and with that how many segments there will be. The addresses are the driver's
business. They were read off the allocator's history in 40 training runs on an H200 (driver 580, Linux): replayed with
the rules below 39 of them reserve what was reserved; with addresses that only grow 28 do, and one errs by 16 %.

- Address space is taken in chunks of 32 MiB, each below the last, as Linux gives them.
- A request first looks for room that is left in a chunk, from the lowest address up.
- Beside the context are two places: 416 MiB below it, 24 MiB above.

What the program maps on the host falls between the chunks and is not known here.
"""

import bisect

MIB = 1 << 20
CHUNK = 32 * MIB
#: Addresses only have an order here, so any that leaves room below will do for the context.
CONTEXT = 1 << 56
LOWEST = CONTEXT - 416 * MIB
BESIDE_THE_CONTEXT = ((LOWEST, CONTEXT), (CONTEXT + 72 * MIB, CONTEXT + 96 * MIB))


class Addresses:
    """The address space of one process on one card: what of it is free, from the lowest address up.

    >>> addresses = Addresses()
    >>> first, second = addresses.allocate(500 * MIB), addresses.allocate(500 * MIB)
    >>> (first - second) // MIB, (addresses.allocate(12 * MIB) - second) // MIB
    (512, 500)
    """

    def __init__(self) -> None:
        self._free = list(BESIDE_THE_CONTEXT)
        self._lowest = LOWEST

    def allocate(self, size: int) -> int:
        """The address of a new segment."""
        for place, (start, end) in enumerate(self._free):
            if end - start >= size:
                del self._free[place]
                return self._use(start, end, size)
        end = self._lowest
        self._lowest -= -(-size // CHUNK) * CHUNK
        return self._use(self._lowest, end, size)

    def free(self, address: int, size: int) -> None:
        """A segment goes back to the driver."""
        bisect.insort(self._free, (address, address + size))

    def _use(self, start: int, end: int, size: int) -> int:
        if end - start > size:
            bisect.insort(self._free, (start + size, end))
        return start
