"""The label of a sample: from the bytes of its field to the number of its class."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from brim.data.tar.fields import decode_npy, extension
from brim.errors import DataError, a_type

MOST_CLASSES = 100_000
SHOWN = 8


@dataclass(frozen=True)
class LabelReader:
    """Reads the label of a sample as a text: ``"7"`` or ``"cat"``; None where it is empty.

    Args:
        field: which holds it; a ``json`` holds it under ``key``, anything but ``npy`` is a text.
        key: the name in the JSON, with dots for one within another.

    >>> LabelReader("cls")(memoryview(b" 07 "))
    '7'
    >>> LabelReader("json", "of.kind")(memoryview(b'{"of": {"kind": "cat"}}'))
    'cat'
    """

    field: str
    key: str | None = None

    def __call__(self, content: memoryview) -> str | None:
        kind = extension(self.field)
        if kind == "json":
            return self._of_json(json.loads(bytes(content)))
        return as_text(decode_npy(content).item() if kind == "npy" else str(content, "utf-8")) or None

    def _of_json(self, value: Any) -> str | None:
        for part in (self.key or "").split(".") if self.key else []:
            if not isinstance(value, Mapping) or part not in value:
                raise ValueError(f"it has no {self.key!r}")
            value = value[part]
        if value is None:
            return None
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            there = f"; it has {', '.join(map(str, value))}" if isinstance(value, Mapping) else ""
            raise DataError(
                f"the label in the field {self.field!r} is {a_type(value)}, where a name or a number must be; "
                f"say which one with data.label_key=...{there}"
            )
        return as_text(value) or None


def as_text(value: str | float) -> str:
    """A label as a text; whole numbers are written in one way.

    >>> as_text("007"), as_text(3.0), as_text(" cat\\n")
    ('7', '3', 'cat')
    """
    text = str(int(value)) if not isinstance(value, str) and value == int(value) else str(value).strip()
    return str(int(text)) if is_number(text) else text


def is_number(text: str) -> bool:
    """Whether a label is a whole number."""
    return text.isascii() and text.removeprefix("-").isdigit()


@dataclass(frozen=True)
class Classes:
    """The classes by number, and the number of each label. Where no name is a number, a label may be the number itself.

    >>> Classes(("cat", "dog")).number("dog"), Classes(("cat", "dog")).number("1")
    (1, 1)
    """

    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        named = {name: number for number, name in enumerate(self.names)}
        has_numbers = any(is_number(name) for name in self.names)
        return named if has_numbers else {**{str(number): number for number in range(len(self.names))}, **named}

    def number(self, label: str) -> int:
        """The number of a label, or an error that says which there are."""
        found = self._numbers.get(label)
        if found is None:
            shown = ", ".join(self.names[:SHOWN]) + (", ..." if len(self) > SHOWN else "")
            raise DataError(
                f"the label {label[:60]!r} is none of the {len(self)} classes ({shown}); name all of them with "
                "data.classes=[...], or their number"
            )
        return found


def named_classes(given: int | Sequence[str]) -> Classes:
    """The classes of a setting: their number, or their names.

    >>> named_classes(3).names
    ('0', '1', '2')
    """
    return Classes(tuple(map(str, range(given))) if isinstance(given, int) else tuple(map(as_text, given)))


def classes_of(labels: Iterable[str | None]) -> Classes:
    """The classes that occur: whole numbers by size, else names by the alphabet; None are samples without a label.

    >>> classes_of(["10", "9", None, "9"]).names
    ('9', '10')
    """
    found = set()
    for label in labels:
        if label is not None:
            found.add(label)
        if len(found) > MOST_CLASSES:
            raise DataError(f"there are more than {MOST_CLASSES:,} different labels; is data.label the right field?")
    if not found:
        raise DataError("no sample has a label; name the field that holds it, data.label=...")
    by_size = all(map(is_number, found))
    return Classes(tuple(sorted(found, key=int) if by_size else sorted(found)))
