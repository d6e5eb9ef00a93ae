"""The search against a card that holds so many samples at once."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from brim.engine.oom.micro_batch_search import CONFIRMED_AFTER, MOST_TRIES, MicroBatchSearch


def train(search, limit, steps=200):
    """So many steps; gives the sizes that ran out of memory, in a row for each step."""
    failures = []
    for _ in range(steps):
        failures.append([])
        while search.size > limit:
            failures[-1].append(search.size)
            assert search.shrink_after_oom()
        fewer = search.note_success()
        if fewer is not None:
            search.number = fewer
    return failures


def sizes(failures):
    return [size for step in failures for size in step]


cards = st.integers(1, 4096).flatmap(lambda batch: st.tuples(st.just(batch), st.integers(1, batch)))


@given(cards)
def test_it_ends_within_a_twentieth_of_the_fewest_slices_that_fit(card):
    batch, limit = card
    search = MicroBatchSearch(batch)
    train(search, limit)
    fewest = -(-batch // limit)
    slices = -(-batch // search.size)  # as many as there really are
    assert search.size <= limit
    assert slices - fewest <= search.good // 20


@given(cards)
def test_it_fails_a_few_times_only(card):
    batch, limit = card
    failures = sizes(train(MicroBatchSearch(batch), limit))
    assert len(failures) <= 2 * math.log2(batch) + 2


@given(cards)
def test_what_was_found_stays(card):
    batch, limit = card
    search = MicroBatchSearch(batch)
    train(search, limit)
    found = search.size
    assert sizes(train(search, limit, 50)) == []
    assert search.size == found


@given(cards)
def test_a_size_that_failed_is_not_tried_again(card):
    batch, limit = card
    failures = sizes(train(MicroBatchSearch(batch), limit))
    assert len(set(failures)) == len(failures)


def test_without_failures_nothing_is_sliced():
    search = MicroBatchSearch(64)
    assert sizes(train(search, 64)) == []
    assert (search.number, search.size) == (1, 64)


def test_a_single_sample_cannot_be_sliced():
    assert not MicroBatchSearch(1).shrink_after_oom()
    search = MicroBatchSearch(3)
    assert search.shrink_after_oom()
    assert search.shrink_after_oom()
    assert search.size == 1
    assert not search.shrink_after_oom()


def test_larger_slices_are_tried_after_a_few_good_steps_and_not_before():
    search = MicroBatchSearch(64, number=8, bad=2)
    *before, then = [search.note_success() for _ in range(CONFIRMED_AFTER)]
    assert before == [None] * (CONFIRMED_AFTER - 1)
    assert 2 < then < 8


def test_a_larger_try_that_fails_goes_back_to_what_ran():
    search = MicroBatchSearch(64, number=8, good=8, bad=2)
    search.number = 5
    assert search.shrink_after_oom()
    assert (search.number, search.bad) == (8, 5)


@given(cards, st.data())
def test_it_never_ends_smaller_for_there_being_more_room(card, data):
    batch, limit = card
    search = MicroBatchSearch(batch)
    train(search, limit)
    found, room = search.size, data.draw(st.integers(limit, batch))
    search.forget_failures()
    train(search, room)
    assert found <= search.size <= room


@pytest.mark.parametrize("limit", [8, 16, 20, 40, 63])
def test_it_grows_back_when_there_is_room(limit):
    search = MicroBatchSearch(64)
    train(search, limit)
    assert search.number > 1
    search.forget_failures()
    assert sizes(train(search, 64)) == []
    assert search.number == 1


@pytest.mark.parametrize(("batch", "limit"), [(17, 1), (1024, 8)])
def test_it_grows_all_the_way_back_however_small_it_was(batch, limit):
    search = MicroBatchSearch(batch)
    train(search, limit)
    search.forget_failures()
    train(search, batch)
    assert search.number == 1


@given(cards, st.data())
def test_it_shrinks_again_when_there_is_less(card, data):
    batch, limit = card
    search = MicroBatchSearch(batch)
    train(search, limit)
    less = data.draw(st.integers(1, limit))
    failures = sizes(train(search, less))
    assert less // 2 <= search.size <= less
    assert len(failures) <= 2 * math.log2(batch) + 3


def test_what_ran_before_is_tried_once_more_as_it_is_before_it_shrinks():
    search = MicroBatchSearch(64, number=4, good=4, bad=3)
    assert search.shrink_after_oom()
    assert search.number == 4
    assert search.shrink_after_oom()
    assert search.number > 4


def test_room_that_others_took_is_no_try_of_larger_slices():
    search = MicroBatchSearch(4096, number=2, good=2)
    for _ in range(MOST_TRIES):
        assert search.shrink_after_oom() and search.shrink_after_oom()
        search.note_success()
    assert not search.is_settled


def test_steps_at_the_limit_of_the_allocator_are_tries_of_larger_slices():
    search = MicroBatchSearch(4096, number=2)
    settled = []
    for _ in range(MOST_TRIES):
        assert search.shrink_after_retries()
        search.number += 2
        search.note_success()
        settled.append(search.is_settled)
    assert settled == [False] * (MOST_TRIES - 1) + [True]


def test_where_there_is_room_again_good_steps_are_counted_anew():
    search = MicroBatchSearch(64, number=8, good=8, bad=2)
    search.note_success()
    search.forget_failures()
    assert [search.note_success() is None for _ in range(CONFIRMED_AFTER)] == [True] * (CONFIRMED_AFTER - 1) + [False]


def test_fewer_slices_than_were_said_not_to_fit_are_not_tried():
    search = MicroBatchSearch(64, number=4, bad=3)
    assert sizes(train(search, 64)) == []
    assert search.number == 4


@given(st.integers(1, 400), st.integers(1, 3))
def test_failing_again_and_again_ends_soon_at_the_smallest_slices(batch, smallest):
    search, failures = MicroBatchSearch(batch, smallest=smallest), 0
    while search.shrink_after_oom():
        failures += 1
        assert failures <= 2 * batch.bit_length() + 2
    assert search.size < 2 * smallest + 1 or batch < 2 * smallest
