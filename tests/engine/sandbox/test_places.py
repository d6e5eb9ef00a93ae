"""What is taken from a place can be put back, by identity."""

from collections import deque
from random import Random

import numpy as np
import pytest
import torch

from brim.engine.sandbox import places


def changed_and_put_back(place, change):
    taken = place.take()
    change()
    assert place.is_changed(taken)
    place.put(taken)
    return taken


def test_a_name_is_bound_again_to_the_same_object_or_to_nothing():
    kept = object()
    scope = {"one": kept}
    place = places.name_in(scope, "one")
    changed_and_put_back(place, lambda: scope.update(one=2))
    assert scope["one"] is kept and not place.is_changed(kept)
    changed_and_put_back(places.name_in(scope, "other"), lambda: scope.update(other=1))
    assert list(scope) == ["one"]


def test_an_attribute_of_a_class_is_put_back():
    class Counter:
        calls = 0

    changed_and_put_back(places.attribute_of(Counter, "calls"), lambda: setattr(Counter, "calls", 5))
    assert Counter.calls == 0


def test_names_that_were_not_there_go_again():
    scope = {"one": 1}
    changed_and_put_back(places.NewNames(scope), lambda: scope.update(two=2))
    assert scope == {"one": 1}


@pytest.mark.parametrize("container", [[1, 2], {"a": 1}, {1, 2}, deque([1, 2]), bytearray(b"ab")], ids=repr)
def test_a_container_stays_the_same_object_with_what_was_in_it(container):
    before = type(container)(container)
    changed_and_put_back(places.Items(container), container.clear)
    assert container == before


@pytest.mark.parametrize("value", [torch.ones(3), np.ones(3)], ids=["tensor", "array"])
def test_the_numbers_of_a_tensor_are_put_back_in_its_memory(value):
    changed_and_put_back(places.Content(value), lambda: value.__imul__(2))
    assert value.tolist() == [1, 1, 1]


def test_a_generator_draws_the_same_again():
    generator = Random(0)
    place = places.GeneratorState(generator)
    taken, drawn = place.take(), generator.random()
    place.put(taken)
    assert generator.random() == drawn


def test_an_iterator_is_kept_where_it_stands():
    scope = {"numbers": iter([1, 2, 3])}
    place = places.name_in(scope, "numbers")
    taken = place.take()
    next(scope["numbers"])
    place.put(taken)
    assert list(scope["numbers"]) == [1, 2, 3]
