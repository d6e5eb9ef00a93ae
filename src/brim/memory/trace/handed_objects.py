"""Objects that a block is handed and may change: a cache of keys and values, which it adds its own to."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

MOST = 10_000  # objects that are looked at
Content = dict[Any, Any] | list[Any]


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors in objects and containers, at any depth."""
    for content in contents_of(values):
        yield from (item for item in _items(content) if isinstance(item, Tensor))


def contents_of(values: Iterable[Any]) -> list[Content]:
    """The lists and dictionaries in which such objects keep what they hold."""
    found, seen, to_visit = list[Content](), set[int](), list(values)
    while to_visit and len(seen) < MOST:
        value = to_visit.pop()
        if isinstance(value, str | bytes | int | float | Tensor | nn.Module | type) or id(value) in seen:
            continue
        seen.add(id(value))
        content = value if isinstance(value, list | dict) else getattr(value, "__dict__", None)
        if isinstance(value, tuple | set):
            to_visit += value
        elif isinstance(content, list | dict):
            found.append(content)
            to_visit += _items(content)
    return found


@contextmanager
def repeated(begun: list[tuple[Content, Content]], handed: list[Any]) -> Iterator[None]:
    """Within, objects hold what they held when a block began; afterwards what they hold now."""
    ended = held_by(handed)
    _put(begun)
    try:
        yield
    finally:
        _put(ended)


def held_by(handed: Iterable[Any]) -> list[tuple[Content, Content]]:
    """What objects hold now, with the places where they hold it."""
    return [(content, content.copy()) for content in contents_of(handed)]


def _put(held: list[tuple[Content, Content]]) -> None:
    for content, copied in held:
        if isinstance(content, list):
            content[:] = copied
        else:
            content.clear()
            content.update(copied)


def _items(content: Content) -> list[Any]:
    return list(content.values()) if isinstance(content, dict) else list(content)
