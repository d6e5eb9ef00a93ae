import enum
from pathlib import Path
from typing import Literal

import pytest
import yaml

from brim.config.parameters import Parameters
from brim.errors import ConfigError, ModelError


class Size(enum.Enum):
    SMALL = "small"


def build(hidden: int = 64, dropout=0.1, name="a", sizes: list[int] | None = None, kind: Literal["a", "b"] = "a",
          path: Path = Path("x"), size: Size = Size.SMALL, copy: bool = False, anything=None, **others):  # fmt: skip
    """Of all kinds."""


def read(function=build, **given):
    return Parameters.read("train.py:build", function, given)


def refusal(function=build, **given):
    with pytest.raises(ConfigError) as refused:
        read(function, **given)
    return str(refused.value)


def test_what_is_not_set_has_the_default_of_the_function():
    assert read().values == {
        "hidden": 64, "dropout": 0.1, "name": "a", "sizes": None, "kind": "a", "path": Path("x"), "size": Size.SMALL,
        "copy": False, "anything": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("hidden", "128", 128), ("dropout", 1, 1.0), ("name", 16, "16"), ("sizes", [1, "2"], [1, 2]),
        ("kind", "b", "b"), ("path", "a/b", Path("a/b")), ("size", "small", Size.SMALL), ("copy", True, True),
        ("anything", {"a": [1]}, {"a": [1]}),
    ],
)  # fmt: skip
def test_values_have_the_types_of_annotations_and_defaults(name, given, value):
    found = read(**{name: given}).values[name]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "given"),
    [("hidden", 1.5), ("hidden", "x"), ("hidden", True), ("dropout", "much"), ("sizes", [1, "x"]), ("kind", "c"),
     ("copy", "perhaps"), ("size", "large"), ("hidden", None), ("hidden", [[[]]])],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_with_its_place(name, given):
    assert refusal(**{name: given}).startswith(f"params.{name}")


def test_a_wrong_name_is_refused_with_the_nearest():
    assert refusal(hiden=3) == "params: train.py:build has no parameter 'hiden'; did you mean 'hidden'?"
    assert refusal(others=3).startswith("params: train.py:build has no parameter 'others'")
    assert refusal(lambda: None, a=3) == "params: train.py:build has no parameter 'a'; it takes none"


def test_a_parameter_without_a_default_must_be_set():
    def needs(width: int, /, depth: int): ...

    def wants(depth: int): ...

    assert refusal(wants) == "train.py:build needs a value for 'depth'; set params.depth=..."
    assert "'width' without a name" in refusal(needs, depth=1)
    assert read(wants, depth=2).values == {"depth": 2}


def test_what_is_written_can_be_read_again():
    written = read(hidden=3, sizes=[1, 2], path="a/b").written
    assert yaml.safe_load(yaml.safe_dump(written)) == written
    assert read(**written).values == read(hidden=3, sizes=[1, 2], path="a/b").values


def test_a_type_that_cannot_be_found_is_the_users_error():
    def odd(a: "Nowhere" = 1): ...  # noqa: F821

    with pytest.raises(ModelError, match="reading the types of "):
        read(odd)


def test_a_type_of_the_users_own_is_taken_as_its_default_and_refused_from_a_file():
    class Mine: ...

    mine = Mine()

    def own(a: Mine = mine): ...

    assert read(own).values == {"a": mine}
    assert refusal(own, a=3).startswith("params.a=3 cannot be used")
