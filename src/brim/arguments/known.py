"""Calls whose arguments are checked by name, so that a wrong one is met with the right one."""

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

import numpy as np
from torch import Tensor

from brim.arguments.nearest import nearest
from brim.arguments.other_trainers import advice_on, name_here, other_names, written_here
from brim.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
MOST_TOLD = 6  # of the names that a call gets wrong
DATA = ("train_data", "eval_data", "test_data")  # of a trainer; calls about one data set have ``data``
SIMILAR = 0.65  # as difflib measures it: below this two names have little more in common than letters
VERY_SIMILAR = 0.85


def known_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, with a :class:`ConfigError` for arguments that it does not have, and numpy's numbers made Python's.

    The signature that editors and :mod:`inspect` see stays the function's own.

    >>> @known_arguments
    ... def train(epochs=1): return epochs
    >>> train(max_epochs=3)
    Traceback (most recent call last):
    brim.errors.ConfigError: train has no argument max_epochs: it is epochs= here
    """
    signature = inspect.signature(function)
    called = function.__qualname__.removesuffix(".__init__").removesuffix(".__new__").rpartition("<locals>.")[2]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        unknown = [name for name in kwargs if name not in signature.parameters]
        if unknown:
            raise ConfigError(_sentence(called, unknown, signature.parameters, args))
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ConfigError(f"{called}: {error}; it takes {_written(signature)}") from None
        plain_args, plain_kwargs = map(as_plain, args), {name: as_plain(value) for name, value in kwargs.items()}
        return function(*plain_args, **plain_kwargs)

    return call


def explained_call(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, with the same sentences, looked for only after a call has failed: for what is called in every step.

    >>> @explained_call
    ... def log(name, value): return value
    >>> log("kl")
    Traceback (most recent call last):
    brim.errors.ConfigError: log: missing a required argument: 'value'; it takes name, value
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # within the function
                raise
            known_arguments(_nothing_of(function))(*args, **kwargs)
            raise

    return call


def _nothing_of(function: Callable[P, R]) -> Callable[P, None]:
    """A function of the same name and arguments that does nothing."""

    @functools.wraps(function)
    def nothing(*args: P.args, **kwargs: P.kwargs) -> None: ...

    return nothing


def known_fields(record: type[T]) -> type[T]:
    """The same for a dataclass, whose fields are the arguments.

    >>> from dataclasses import dataclass
    >>> @known_fields
    ... @dataclass
    ... class Point: x: int = 0
    >>> Point(z=1)
    Traceback (most recent call last):
    brim.errors.ConfigError: Point has no argument z: it takes x
    """
    record.__init__ = known_arguments(record.__init__)  # type: ignore[method-assign]
    return record


def _sentence(called: str, unknown: list[str], known: Collection[str], args: tuple[Any, ...]) -> str:
    elsewhere = dict(_elsewhere(args[0])) if args and "self" in known else {}
    told = [f"{name}: {_advice(name, known, elsewhere)}" for name in unknown[:MOST_TOLD]]
    more = f"; and {len(unknown) - MOST_TOLD} more" if len(unknown) > MOST_TOLD else ""
    return f"{called} has no argument {'; nor '.join(told)}{more}"


def _advice(name: str, known: Collection[str], elsewhere: Mapping[str, str]) -> str:
    """What to write instead: another name, another place, or what is most alike."""
    offered = [argument for argument in known if argument not in ("self", "cls")]
    if (here := name_here(name, offered)) is not None:
        return f"it is {written_here(name, here)}"
    if "data" in offered and (name_here(name, DATA) or name) in DATA:
        return "it is data= here"
    if (there := name if name in elsewhere else name_here(name, elsewhere)) is not None:
        return f"it is {elsewhere[there]}"
    if (advice := advice_on(name)) is not None:
        return advice
    if (near := nearest(name, offered, SIMILAR)) is not None:
        return f"did you mean {near}=?"
    if (near := nearest(name, elsewhere, VERY_SIMILAR)) is not None:
        return f"did you mean {elsewhere[near]}?"
    foreign = nearest(name, [one for one in other_names() if one != name], VERY_SIMILAR)
    if foreign is not None and (name_here(foreign, [*offered, *elsewhere]) or advice_on(foreign)) is not None:
        return _advice(foreign, known, elsewhere)
    if 0 < len(offered) <= MOST_TOLD:
        return f"it takes {', '.join(offered)}"
    return "it is not a known name of another trainer's either; the docstring lists what there is"


def _elsewhere(owner: Any) -> Iterator[tuple[str, str]]:
    """Arguments of the other methods of an object, by where they belong."""
    cls = type(owner)
    for method in reversed(["__init__", *[name for name in vars(cls) if not name.startswith("_")]]):
        function = inspect.getattr_static(cls, method, None)
        if inspect.isfunction(function):
            where = cls.__name__ if method == "__init__" else f"{cls.__name__}.{method}"
            yield from ((name, f"{where}({name}=...)") for name in inspect.signature(function).parameters)


def _written(signature: inspect.Signature) -> str:
    """The arguments that can be given by position; the others are told of, not listed."""
    named = inspect.Parameter.KEYWORD_ONLY
    first = [
        name for name, one in signature.parameters.items() if name not in ("self", "cls") and one.kind is not named
    ]
    has_others = any(one.kind is named for one in signature.parameters.values())
    return (", ".join(first) or "nothing") + (", and the others by name" if has_others else "")


def as_plain(value: Any) -> Any:
    """A single number of numpy's or torch's as Python's; anything else as it is.

    >>> as_plain(np.int64(2)), as_plain([1])
    (2, [1])
    """
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    if isinstance(value, Tensor) and value.dim() == 0 and not value.requires_grad and not value.is_meta:
        return value.item()
    return value
