"""Whose code it is, and what it names."""

import collections
import sys

import numpy as np
import torch

from brim.engine.sandbox.users_code import closure_of, is_users, is_users_code, names_in, package_of, users_slots


def outer(factor):
    def inner(x):
        return torch.relu(x) * factor

    return inner


def unfilled():
    def inner():
        return later

    found = dict(closure_of(inner))
    later = 1
    return found, dict(closure_of(inner)), later


def test_libraries_and_python_itself_are_nobody_elses():
    assert is_users(outer) and is_users(sys.modules[__name__])
    assert not any(map(is_users, (torch.nn.Linear, np.random.Generator, collections.OrderedDict, torch)))
    assert package_of(torch.nn.Linear) == "torch"


def test_what_a_library_wraps_around_a_function_goes_by_its_name_and_is_no_code_of_the_users():
    wrapped = torch.no_grad()(outer)
    assert is_users(wrapped) and is_users_code(outer)
    assert not is_users_code(wrapped)


def test_names_of_functions_within_a_function_are_found():
    assert {"torch", "relu"} <= set(names_in(outer.__code__))


def test_a_closure_is_read_but_for_variables_without_a_value():
    assert dict(closure_of(outer(3))) == {"factor": 3}
    assert unfilled() == ({}, {"later": 1}, 1)


class Slotted:
    __slots__ = ("__hidden", "__weakref__", "shown")


def test_slots_of_the_users_classes_have_the_names_that_they_are_stored_under():
    assert list(users_slots(type("Derived", (Slotted,), {"__module__": __name__}))) == ["_Slotted__hidden", "shown"]
    assert list(users_slots(collections.deque)) == []
