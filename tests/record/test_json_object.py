import pytest

from brim.record.json_object import DEEPEST, json_object


def nested(levels):
    return '{"a": ' + "[" * levels + "]" * levels + "}"


def test_an_object_is_read():
    assert json_object('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize("text", ["", "[]", "1", '"a"', "null", "{", '{"a": 1', '{"a": ' + "9" * 5000 + "}"])
def test_what_is_no_object_is_nothing(text):
    assert json_object(text) is None


@pytest.mark.parametrize(
    ("levels", "is_read"), [(DEEPEST - 1, True), (DEEPEST + 1, False), (900, False), (10**5, False)]
)
def test_only_what_is_nested_ordinarily_is_read(levels, is_read):
    assert (json_object(nested(levels)) is not None) == is_read
