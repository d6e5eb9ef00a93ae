"""Functions of the user's that are called with one argument."""

import inspect
from typing import Any

from brim.errors import ConfigError


def check_takes_one(function: Any, argument: str, example: str) -> None:
    """Refuse what cannot be called with one thing, before it is.

    >>> check_takes_one(len, "optimizer", "lambda parameters: SGD(parameters, lr=0.1)")
    """
    if not callable(function):
        raise ConfigError(
            f"{argument}= is a {type(function).__name__}; give a name, or a function: {argument}={example}"
        )
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        called = getattr(function, "__name__", type(function).__name__)
        raise ConfigError(
            f"{argument}={called} is called with one argument ({error}); write {argument}={example}"
        ) from None
    except ValueError:  # native code has no signature
        return
