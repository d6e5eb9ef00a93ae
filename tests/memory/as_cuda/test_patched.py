"""Attributes that are others for a while."""

import pytest

from brim.memory.as_cuda.patched import patched


class Parent:
    kept = 1

    @staticmethod
    def made() -> str:
        return "parent"


class Child(Parent):
    own = 2


def test_attributes_come_back_as_they_were_defined():
    before = dict(vars(Parent))
    with pytest.raises(ZeroDivisionError), patched(Parent, kept=5, made=staticmethod(lambda: "other"), new=7):
        assert (Parent.kept, Parent.made(), Parent.new) == (5, "other", 7)
        raise ZeroDivisionError
    assert dict(vars(Parent)) == before


def test_what_was_inherited_is_inherited_again():
    with patched(Child, kept=9, own=3):
        assert (Child.kept, Child.own, Parent.kept) == (9, 3, 1)
    assert "kept" not in vars(Child)
    assert (Child.kept, Child.own) == (1, 2)
