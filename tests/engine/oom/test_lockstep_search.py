"""How often micro-batches of ranks in lockstep grow, by what they say that they have room for."""

import pytest

from brim.engine.oom.lockstep_search import LATER, MOST_TRIES, SOON, LockstepSearch, Room

SHARE = 12


class Ranks:
    """A rank with room for so many samples of the usual length, and what the others say."""

    def __init__(self, room=SHARE, most=None, others=()):
        self.search = LockstepSearch(most)
        self.room, self.others = room, [Room(*other) for other in others]
        self.has_more = False
        self.compared = 0

    def run(self, steps, memory=lambda step: SHARE, size=None):
        """Steps that fail where micro-batches are larger than ``memory``; the sizes in force, and the failures."""
        sizes, failures = [], 0
        for step in range(steps):
            self.search.begin()
            while (size or SHARE) > memory(step):
                failures += 1
                smaller = self.search.after_failure(size or SHARE)
                self.search.note_oom(size or SHARE)
                size = smaller
            sizes.append(size)
            self.search.note_success()
            if self.search.is_due(size):
                size = self._compare(size) or size
        return sizes, failures

    def _compare(self, size):
        self.compared += 1
        own, self.has_more = Room(self.has_more, self.room), False
        return self.search.larger(size, [own, *self.others], SHARE)


def test_it_grows_soon_after_a_failure_and_to_even_micro_batches():
    ranks = Ranks(room=5)
    sizes, failures = ranks.run(6, lambda step: 5)
    assert sizes == [3] + [3] * SOON + [4] * (6 - SOON - 1) and failures == 2
    assert ranks.compared >= 1


@pytest.mark.parametrize("every", [3, 10, 100])
def test_batches_that_cost_more_now_and_then_do_not_make_it_try_for_ever(every):
    """Each failure costs all ranks a new copy of the model."""
    sizes, failures = Ranks().run(2000, lambda step: SHARE // 4 if step % every == every - 1 else SHARE)
    assert failures <= 2 + MOST_TRIES
    assert sizes[-1] <= SHARE // 4


def test_it_tries_again_when_a_rank_that_ran_out_has_more_room():
    ranks = Ranks()
    size = ranks.run(300, lambda step: 3 if step % 10 == 9 else SHARE)[0][-1]
    assert size <= 3
    ranks.has_more = True
    assert ranks.run(LATER + SOON, size=size)[0][-1] == SHARE


def test_it_never_exceeds_what_was_asked_for():
    ranks = Ranks(most=4)
    assert set(ranks.run(200, size=4)[0]) == {4}
    assert ranks.run(200, size=2)[0][-1] == 4


@pytest.mark.parametrize(("others", "grown"), [([(False, 6)], 6), ([(False, 3)], 3), ([(False, None)], 2)])
def test_the_rank_with_least_room_decides_and_one_that_cannot_tell_is_waited_for(others, grown):
    assert Ranks(others=others).run(4 * LATER, size=2)[0][-1] == grown


def test_whole_batches_are_left_alone():
    ranks = Ranks()
    assert set(ranks.run(2 * LATER)[0]) == {None} and ranks.compared == 0
