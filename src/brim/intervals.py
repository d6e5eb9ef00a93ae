"""Sets of moments as sorted, disjoint intervals: what a share of time is a length of."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The moments that lie in any of them.

    >>> union([(4, 6), (0, 2), (1, 3), (3, 3)])
    [(0, 3), (4, 6)]
    """
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def intersection(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """The moments that lie in both.

    >>> intersection([(0, 3), (4, 6)], [(2, 5)])
    [(2, 3), (4, 5)]
    """
    found: list[Interval] = []
    i = j = 0
    while i < len(one) and j < len(other):
        start, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < end:
            found.append((start, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def difference(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """The moments of the first that do not lie in the second.

    >>> difference([(0, 10)], [(2, 3), (5, 12)])
    [(0, 2), (3, 5)]
    """
    found: list[Interval] = []
    for start, end in one:
        at = start
        first = bisect_left(other, start, key=lambda part: part[1])
        for other_start, other_end in other[first:]:
            if other_start >= end:
                break
            if other_start > at:
                found.append((at, other_start))
            at = max(at, other_end)
        if at < end:
            found.append((at, end))
    return found


def length(intervals: Iterable[Interval]) -> float:
    """How long they are together.

    >>> length([(0, 3), (4, 6)])
    5
    """
    return sum(end - start for start, end in intervals)


def covers(intervals: Sequence[Interval], moment: float) -> bool:
    """Whether a moment lies in one of them.

    >>> covers([(0, 3), (4, 6)], 5), covers([(0, 3), (4, 6)], 3.5)
    (True, False)
    """
    place = bisect_right(intervals, moment, key=lambda part: part[0]) - 1
    return place >= 0 and intervals[place][0] <= moment < intervals[place][1]
