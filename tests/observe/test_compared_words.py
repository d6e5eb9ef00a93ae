import pytest

from brim.observe.compared_words import show_number, show_ratio, show_setting
from brim.observe.comparison import Number


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [("seconds", 75.0, "1 min 15 s"), ("samples/s", 1234.6, "1,235"), ("accuracy", None, "-"), ("f1", 0.5, "0.5")],
)
def test_numbers_read_as_what_they_are(name, number, text):
    assert show_number(name, number) == text


def test_settings_of_any_kind_are_texts():
    assert [show_setting(value) for value in (None, True, 0.1, {"a": [1]}, object)][:4] == [
        "",
        "true",
        "0.1",
        '{"a": [1]}',
    ]


def test_there_is_no_ratio_to_nothing():
    assert [show_ratio(Number("x", a, b)) for a, b in ((0.0, 1.0), (None, 1.0), (2.0, 1.0))] == ["", "", "0.5"]
