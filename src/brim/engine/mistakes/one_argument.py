"""Functions of the user's that are called with one argument."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from brim.errors import ConfigError, a_type

T = TypeVar("T")
R = TypeVar("R")


def check_takes_one(function: Any, argument: str, example: str) -> None:
    """Refuse what cannot be called with one thing, before it is.

    >>> check_takes_one(len, "optimizer", "lambda parameters: SGD(parameters, lr=0.1)")
    """
    if not callable(function):
        raise ConfigError(f"{argument}= is {a_type(function)}; give a name, or a function: {argument}={example}")
    try:
        signature = inspect.signature(function)
        signature.bind(None)
    except TypeError as error:
        called = getattr(function, "__name__", type(function).__name__)
        asked = [name for name, one in signature.parameters.items() if one.default is one.empty]
        if isinstance(function, type) and len(asked) > 1 and example.startswith("lambda "):
            handed = example.removeprefix("lambda ").partition(":")[0]
            values = ", ".join(f"{name}=..." for name in asked[1:])
            example = f"lambda {handed}: {called}({handed}, {values})"
        raise ConfigError(
            f"{argument}={called} is called with one argument ({error}); write {argument}={example}"
        ) from None
    except ValueError:  # native code has no signature
        return


def call_with(function: Callable[[T], R], handed: T, argument: str, what: str, example: str) -> R:
    """``function(handed)``; one that takes it for something else, as its first line shows, is told what it is.

    >>> call_with(len, [1, 2], "optimizer", "the list of parameters", "lambda parameters: ...")
    2
    """
    try:
        return function(handed)
    except (AttributeError, TypeError) as error:
        raised_at = error.__traceback__ and error.__traceback__.tb_next
        if type(handed).__name__ not in str(error) or (raised_at is not None and raised_at.tb_next is not None):
            raise
        raise ConfigError(f"{argument}= is handed {what} ({error}); write {argument}={example}") from error
