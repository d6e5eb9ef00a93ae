"""Whether a value is another one than before, also where it is no data."""

import numpy as np
import pytest
import torch

from brim.engine.state.plain_value import MOST_BYTES
from brim.engine.state.seen_value import see, see_iterator

LARGE = MOST_BYTES // 4 + 1


class Thing:
    pass


@pytest.mark.parametrize("value", [1, [1, "a"], torch.ones(2), Thing(), [Thing()], torch.ones(LARGE), np.ones(LARGE)])
def test_what_nobody_touched_is_the_same(value):
    assert see(value).is_same(see(value).without_content())


def test_a_dict_of_objects_that_nobody_touched_is_the_same_wherever_its_items_are_looked_at():
    value = {"sum": max, "mean": min, "other": Thing()}  # as torchmetrics keeps its reductions
    before = see(value)
    between = list(value.items())  # pairs that lie where others lay before
    assert see(value).is_same(before), between


def write(value):
    value[0] = 5


MOVES = {
    "list": ([1], write),
    "tensor": (torch.ones(2), write),
    "tensor without a mark": (torch.ones(2), lambda value: write(value.data)),
    "large tensor": (torch.ones(LARGE), write),
    "large array": (np.ones(LARGE), write),
    "list of objects": ([Thing()], lambda value: value.append(Thing())),
    "dict of objects": ({0: Thing()}, lambda value: value.update({0: Thing()})),
    "set of objects": ({Thing()}, lambda value: value.add(Thing())),
}


@pytest.mark.parametrize("case", MOVES)
def test_what_was_written_to_is_not(case):
    value, move = MOVES[case]
    before = see(value)
    move(value)
    assert not see(value).is_same(before)


class Fails:
    def __len__(self):
        raise RuntimeError("not here")

    def __getattr__(self, name):
        raise RuntimeError("not there")


def test_an_object_that_fails_when_it_is_looked_at_ends_nothing():
    value = Fails()
    assert see(value).is_same(see(value))


def test_another_object_in_the_place_of_one_that_is_gone_is_not_the_same():
    before = see(Thing())  # nothing holds it, so the next may lie where it did
    assert not see(Thing()).is_same(before)


def test_a_tensor_with_the_graph_of_a_step_is_kept_alive_by_nobody():
    weight = torch.ones(LARGE, requires_grad=True)
    product = weight * 2
    before = see(product).without_content()
    assert see(product).is_same(before)
    product = weight * 2
    assert not see(product).is_same(before)
    assert before.alive() is None


def test_iterators_are_told_by_how_far_they_are():
    def generator():
        yield from range(9)

    for numbers in (generator(), iter([1, 2, 3]), iter(torch.utils.data.DataLoader([1, 2, 3]))):
        before = see_iterator(numbers)
        assert see_iterator(numbers).is_same(before)
        next(numbers)
        assert not see_iterator(numbers).is_same(before)
    zipped = zip([1], [2], strict=True)
    assert not see_iterator(zipped).is_same(see_iterator(zipped))  # nobody can see that
