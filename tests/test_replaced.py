"""Attributes that have another value for a while are put back, whatever happens."""

from types import SimpleNamespace

import pytest

from brim.replaced import replaced


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


class Parent:
    @staticmethod
    def made():
        return "parent"


class Child(Parent):
    pass


def test_classes_get_back_what_they_defined_and_inherit_again_what_they_did_not():
    before = dict(vars(Parent))
    with replaced((Parent, "made", staticmethod(lambda: "other"))):
        assert Child.made() == "other"
    assert dict(vars(Parent)) == before
    with replaced((Child, "made", staticmethod(lambda: "own"))):
        assert (Child.made(), Parent.made()) == ("own", "parent")
    assert "made" not in vars(Child)


def test_a_property_is_set_and_not_covered():
    class Switch:
        is_on = property(lambda self: self.kept, lambda self, value: setattr(self, "kept", value))

    switch = Switch()
    switch.is_on = False
    with replaced((switch, "is_on", True)):
        assert switch.kept
    assert not switch.kept
    assert vars(switch) == {"kept": False}
