import types

from brim.data.probing.attributes import attributes_of, slot_names


class Base:
    __slots__ = ("__hidden", "shown")

    def __init__(self):
        self.__hidden, self.shown = 1, 2


class Derived(Base):
    def __init__(self):
        super().__init__()
        self.own = 3


def test_slots_of_bases_are_known_by_the_names_that_they_are_stored_under():
    assert slot_names(Derived) == ["_Base__hidden", "shown"]
    assert attributes_of(Derived()) == [("own", 3), ("_Base__hidden", 1), ("shown", 2)]


def test_a_slot_without_a_value_and_an_object_without_attributes_have_none():
    assert attributes_of(Base.__new__(Base)) == [] and attributes_of(7) == []


def test_a_dictionary_that_is_its_own_namespace_is_no_attribute_of_itself():
    class Names(dict):
        def __init__(self):
            self.__dict__ = self

    assert attributes_of(Names()) == []
    assert attributes_of(types.SimpleNamespace(a=1)) == [("a", 1)]
