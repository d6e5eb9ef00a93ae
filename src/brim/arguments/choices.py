"""One of several names: whether a setting is one, and the nearest where it is not."""

from collections.abc import Iterable
from typing import Any

from brim.arguments.nearest import nearest
from brim.errors import ConfigError


def check_choice(name: str, value: Any, choices: Iterable[Any], offered: Iterable[Any] | None = None) -> None:
    """Refuse what is not one of the choices, and offer the nearest of them, or those ``offered`` where none is near."""
    choices = list(choices)
    if any(value is choice or (value == choice and type(value) is type(choice)) for choice in choices):
        return
    near = nearest(str(value)[:60], map(str, choices))
    hint = f"use {', '.join(map(repr, offered or choices))}" if near is None else f"did you mean {near!r}?"
    raise ConfigError(f"{name}={shorten(value)} is not known; {hint}")


def shorten(value: Any, most: int = 60) -> str:
    """A value as it would be written in Python, cut where it is longer than a person wants to read."""
    written = " ".join(repr(value).split())  # a tensor takes several lines
    return written if len(written) <= most else written[: most - 3] + "..."
