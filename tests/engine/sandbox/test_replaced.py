"""Attributes that have another value for a while are put back, whatever happens."""

from types import SimpleNamespace

import pytest

from brim.engine.sandbox.replaced import replaced


def test_what_was_replaced_is_put_back_after_an_error_too():
    one, other = SimpleNamespace(a=1), SimpleNamespace(b=[2])
    kept = other.b
    with pytest.raises(ValueError), replaced((one, "a", 5), (other, "b", None)):
        assert (one.a, other.b) == (5, None)
        raise ValueError
    assert one.a == 1 and other.b is kept


def test_an_attribute_that_is_not_there_changes_nothing():
    one = SimpleNamespace(a=1)
    with pytest.raises(AttributeError), replaced((one, "a", 5), (one, "missing", 5)):
        pass
    assert vars(one) == {"a": 1}


def test_one_that_is_replaced_twice_ends_as_it_was():
    one = SimpleNamespace(a=1)
    with replaced((one, "a", 2), (one, "a", 3)):
        assert one.a == 3
    assert one.a == 1
