"""To which lengths sequences are padded."""

from collections.abc import Mapping, Sequence
from itertools import combinations

GRAIN = 8  # matrix products are quickest with multiples of it


def chosen_lengths(seen: Mapping[int, int], most: int) -> list[int]:
    """At most so many lengths, ascending, by which the fewest positions are added to batches as they were ``seen``.

    The longest that was seen is the last: a longer one might be more than the model has positions for.

    >>> chosen_lengths({10: 5, 12: 5, 100: 1}, most=2)
    [16, 100]
    """
    *shorter, longest = sorted(seen)
    rounded = sorted({min(-(-length // GRAIN) * GRAIN, longest) for length in shorter} - {longest})
    choices = combinations(rounded, min(most - 1, len(rounded)))
    return min(([*choice, longest] for choice in choices), key=lambda chosen: _padded_positions(seen, chosen))


def _padded_positions(seen: Mapping[int, int], chosen: Sequence[int]) -> int:
    return sum(times * (length_for(length, chosen) or 0) for length, times in seen.items())


def length_for(length: int, chosen: Sequence[int]) -> int | None:
    """The least of the chosen ones, which ascend, that is long enough.

    >>> length_for(9, [8, 16]), length_for(17, [8, 16])
    (16, None)
    """
    return next((one for one in chosen if one >= length), None)
