import itertools

from hypothesis import given
from hypothesis import strategies as st

from brim.intervals import covers, difference, intersection, length, union

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def moments(intervals):
    return {moment for start, end in intervals for moment in range(start, end)}


@given(spans, spans)
def test_they_are_sets_of_moments(one, other):
    a, b = union(one), union(other)
    assert moments(a) == moments(one) and length(a) == len(moments(one))
    assert moments(intersection(a, b)) == moments(a) & moments(b)
    assert moments(difference(a, b)) == moments(a) - moments(b)
    assert all(covers(a, moment) == (moment in moments(a)) for moment in range(41))


@given(spans)
def test_a_union_is_sorted_and_has_gaps(one):
    found = union(one)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(found))
