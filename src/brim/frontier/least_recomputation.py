"""Which blocks to compute again: those that give enough memory back for the least time."""

from collections.abc import Sequence

UNITS = 512  # in which memory is counted: finer ones decide nothing, for a replay of the allocator has the last word


def least_recomputation(savings: Sequence[int], costs: Sequence[float], needed: int) -> tuple[int, ...]:
    """The places of the blocks whose savings reach what is needed at the least sum of costs; all where none do.

    A knapsack, filled by dynamic programming over parts of the memory. Of blocks that are equal the first are taken:
    in the backward pass those come last, when the others have let their memory go.

    >>> least_recomputation([10, 10, 10], [1.0, 1.0, 1.0], 15)
    (0, 1)
    >>> least_recomputation([10, 30, 10], [1.0, 1.5, 1.0], 20)
    (1,)
    """
    if needed <= 0:
        return ()
    total = sum(savings)
    if needed >= total:
        return tuple(range(len(savings)))
    unit = max(1.0, total / UNITS)
    parts, goal = [round(saving / unit) for saving in savings], max(1, int(needed / unit))
    # For each number of parts that may be reached: the least cost, and the blocks that reach it.
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for place, (part, cost) in enumerate(zip(parts, costs, strict=True)):
        for reached, (spent, taken) in list(best.items()):
            now = min(goal, reached + part)
            if now not in best or spent + cost < best[now][0]:
                best[now] = (spent + cost, (*taken, place))
    if goal not in best:
        return tuple(range(len(savings)))
    return _first_of_equal(best[goal][1], list(zip(savings, costs, strict=True)))


def _first_of_equal(taken: tuple[int, ...], blocks: list[tuple[int, float]]) -> tuple[int, ...]:
    """As many of each kind of block, and the first of its kind."""
    chosen = []
    for kind in dict.fromkeys(blocks[place] for place in taken):
        count = sum(blocks[place] == kind for place in taken)
        chosen += [place for place, block in enumerate(blocks) if block == kind][:count]
    return tuple(sorted(chosen))
