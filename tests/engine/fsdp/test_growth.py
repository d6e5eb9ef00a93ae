"""How often slices of a sharded model grow, by what the ranks say that they have room for."""

from types import SimpleNamespace

import pytest

from brim.engine.fsdp.growth import LATER, MOST_TRIES, SOON, Growth

SHARE = 12


class Card:
    """A rank's card, with room for so many samples of the usual length."""

    def __init__(self, room):
        self.room = room
        self.has_more = False
        self.measured = 0

    def begin(self):
        self.measured += 1

    def largest_size(self, largest):
        return self.room

    def has_more_room(self):
        return self.has_more

    def note_room(self):
        self.has_more = False


def alone(told):
    return [told]


def run(growth, steps, room=lambda step: SHARE, size=None):
    """Steps that fail where slices are larger than ``room``; the sizes in force, and how many steps failed."""
    sizes, failures = [], 0
    for step in range(steps):
        growth.begin(size)
        while (size or SHARE) > room(step):
            failures += 1
            smaller = growth.after_failure(size or SHARE)
            growth.failed(size or SHARE)
            size = smaller
        sizes.append(size)
        size = growth.end(size, size or SHARE, SHARE) or size
    return sizes, failures


def made(room, most=None):
    card = Card(room)
    return Growth(SimpleNamespace(all_gather_object=alone), card, most), card


def test_it_grows_soon_after_a_failure_and_to_even_slices():
    growth, card = made(room=5)
    sizes, failures = run(growth, 6, lambda step: 5)
    assert sizes == [3] + [3] * SOON + [4] * (6 - SOON - 1) and failures == 2
    assert card.measured >= 1


@pytest.mark.parametrize("every", [3, 10, 100])
def test_batches_that_cost_more_now_and_then_do_not_make_it_try_for_ever(every):
    """Each failure costs all ranks a new copy of the model."""
    growth, _ = made(room=SHARE)
    sizes, failures = run(growth, 2000, lambda step: SHARE // 4 if step % every == every - 1 else SHARE)
    assert failures <= 2 + MOST_TRIES
    assert sizes[-1] <= SHARE // 4


def test_it_tries_again_when_a_rank_that_ran_out_has_more_room():
    growth, card = made(room=SHARE)
    size = run(growth, 300, lambda step: 3 if step % 10 == 9 else SHARE)[0][-1]
    assert size <= 3
    card.has_more = True
    assert run(growth, LATER + SOON, size=size)[0][-1] == SHARE


def test_it_never_exceeds_what_was_asked_for():
    growth, _ = made(room=SHARE, most=4)
    assert set(run(growth, 200, size=4)[0]) == {4}
    assert run(growth, 200, size=2)[0][-1] == 4


def test_the_rank_with_least_room_decides_and_one_that_cannot_tell_is_waited_for():
    for others, grown in (([(False, 6)], 6), ([(False, 3)], 3), ([(False, None)], 2)):
        growth, _ = made(room=SHARE)
        growth.ranks.all_gather_object = lambda told, others=others: [told, *others]
        assert run(growth, 4 * LATER, size=2)[0][-1] == grown


def test_whole_batches_are_left_alone():
    growth, card = made(room=SHARE)
    assert set(run(growth, 2 * LATER)[0]) == {None} and card.measured == 0
