"""The blocks that give enough memory back for the least time."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brim.frontier.least_recomputation import least_recomputation


@pytest.mark.parametrize(("needed", "chosen"), [(0, ()), (1, (0,)), (10, (0,)), (11, (0, 1)), (40, (0, 1, 2, 3))])
def test_of_equal_blocks_the_first_are_taken(needed, chosen):
    assert least_recomputation([10, 10, 10, 10], [1.0] * 4, needed) == chosen


def test_what_holds_much_for_little_time_is_taken_first():
    assert least_recomputation([100, 10, 100], [9.0, 0.1, 1.0], 90) == (2,)


def test_all_are_taken_where_even_they_are_not_enough():
    assert least_recomputation([10, 20], [1.0, 1.0], 1000) == (0, 1)
    assert least_recomputation([], [], 10) == ()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=7),
    st.floats(0.01, 1.0),
)
def test_no_other_choice_that_gives_as_much_is_cheaper(blocks, share):
    savings, costs = [8 * saving for saving, _ in blocks], [float(cost) for _, cost in blocks]
    needed = max(1, int(share * sum(savings)))
    chosen = least_recomputation(savings, costs, needed)
    unit = max(1.0, sum(savings) / 512)
    reached = sum(savings[place] for place in chosen)
    assert reached >= needed - unit * (len(blocks) + 1)  # memory is counted in parts
    every = [places for size in range(len(blocks) + 1) for places in combinations(range(len(blocks)), size)]
    enough = [places for places in every if sum(savings[p] for p in places) >= needed + unit * (len(blocks) + 1)]
    assert all(sum(costs[p] for p in chosen) <= sum(costs[p] for p in places) + 1e-9 for places in enough)
