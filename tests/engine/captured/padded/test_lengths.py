from collections import Counter
from itertools import combinations

from helpers.examples import examples
from hypothesis import given
from hypothesis import strategies as st

from brim.engine.captured.padded.lengths import GRAIN, chosen_lengths, length_for

SEEN = st.dictionaries(st.integers(1, 130), st.integers(1, 9), min_size=1, max_size=12)


@examples(50)
@given(SEEN, st.integers(1, 4))
def test_every_batch_that_was_seen_has_a_length_and_none_is_longer_than_the_longest(seen, most):
    chosen = chosen_lengths(seen, most)
    assert chosen == sorted(set(chosen)) and len(chosen) <= most
    assert chosen[-1] == max(seen)
    assert all(length_for(length, chosen) >= length for length in seen)
    assert all(length % GRAIN == 0 for length in chosen[:-1])


@examples(50)
@given(SEEN, st.integers(1, 4))
def test_no_other_choice_adds_fewer_positions(seen, most):
    def positions(chosen):
        return sum(times * length_for(length, chosen) for length, times in seen.items())

    multiples = range(GRAIN, max(seen), GRAIN)
    others = (list(some) for number in range(most) for some in combinations(multiples, number))
    assert positions(chosen_lengths(seen, most)) <= min(positions([*some, max(seen)]) for some in others)


def test_what_comes_often_is_hardly_padded():
    assert chosen_lengths(Counter([33] * 9 + [20, 60, 120]), 2) == [40, 120]
    assert chosen_lengths({7: 3}, 4) == [7]
