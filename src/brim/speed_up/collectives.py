"""How long GPUs take to exchange something in a ring, each sending to the next while it hears from the one before."""

from collections.abc import Sequence

from brim.hardware.links import Link

BUCKET_BYTES = 8 << 20  # as brim's ranks fill them


def all_reduce_seconds(size: float, gpus: int, link: Link) -> float:
    """Everybody gets the sum of what all have: n - 1 hops to add up an nth each, and n - 1 to hand it round.

    100 MB on 4 GPUs at 10 GB/s and 5 us a hop: 2 * 3/4 * 10 ms, and 6 hops.

    >>> 1e3 * all_reduce_seconds(100e6, 4, Link("", 10e9, 5e-6))
    15.03
    """
    return 2 * all_gather_seconds(size, gpus, link)


def all_gather_seconds(size: float, gpus: int, link: Link) -> float:
    """Everybody gets the nth part that each has of ``size`` bytes. To add up and keep an nth takes as long."""
    return (gpus - 1) / gpus * size / link.bandwidth + link.latency * (gpus - 1)


def broadcast_seconds(size: float, gpus: int, link: Link) -> float:
    """One sends the same to everybody, piece by piece, so that all hops are busy; all to one takes as long."""
    return 0.0 if gpus == 1 else size / link.bandwidth + link.latency * (gpus - 1)


def buckets_of(sizes: Sequence[int]) -> list[int]:
    """Bytes of the buckets that gradients of these sizes fill, in their order, one that is larger by itself."""
    found: list[int] = []
    for size in sizes:
        if found and found[-1] + size <= BUCKET_BYTES:
            found[-1] += size
        else:
            found.append(size)
    return found
