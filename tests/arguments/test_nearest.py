import pytest

from brim.arguments.nearest import nearest


@pytest.mark.parametrize(
    ("name", "known", "at_least", "expected"),
    [
        ("optimzer", ["optimizer", "scheduler"], 0.6, "optimizer"),
        ("optimzer", ["optimizer", "scheduler"], 0.99, None),
        ("x", ["optimizer"], 0.0, "optimizer"),
        ("x", [], 0.0, None),
        ("lr", iter(["lr"]), 0.6, "lr"),
    ],
)
def test_the_name_that_looks_most_like_it(name, known, at_least, expected):
    assert nearest(name, known, at_least) == expected
