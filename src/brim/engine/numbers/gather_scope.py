"""What ``brim.gather`` does where a loss is being computed: it depends on who computes it, and which ranks with it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import torch
from torch import Tensor

from brim.errors import ConfigError


class GatherScope(Protocol):
    """Answers :func:`brim.gather` meanwhile."""

    def gather(self, tensor: Tensor) -> Tensor: ...


class Alone:
    """This process computes a batch by itself, whatever other ranks do: what it has is all there is.

    >>> Alone().gather(Tensor([1.0]))
    tensor([1.])
    """

    def __init__(self) -> None:
        self.calls = 0

    def gather(self, tensor: Tensor) -> Tensor:
        self.calls += 1
        return tensor


class Noted:
    """On trial: keeps what is handed over, and answers as if another rank had handed over the same."""

    def __init__(self) -> None:
        self.handed: list[Tensor] = []

    def gather(self, tensor: Tensor) -> Tensor:
        self.handed.append(tensor)
        return torch.cat([tensor, tensor])


class Answered:
    """On trial: answers with what was ``joined`` of all ranks, in the order of the calls."""

    def __init__(self, joined: Sequence[Tensor]) -> None:
        self._joined = iter(joined)

    def gather(self, tensor: Tensor) -> Tensor:
        return next(self._joined)


class Refused:
    """Ranks would be left waiting for each other, or computed something else; ``why`` says it, and what to do."""

    def __init__(self, why: str) -> None:
        self.why = why

    def gather(self, tensor: Tensor) -> Tensor:
        raise ConfigError(f"brim.gather cannot be called here: {self.why}")


# Of the context and not of an object: brim.gather is called from within users' code, which is handed nothing of brim's.
_scope: ContextVar[GatherScope | None] = ContextVar("brim_gather_scope", default=None)


def gather_scope() -> GatherScope | None:
    """What answers now; None outside of what brim computes."""
    return _scope.get()


@contextmanager
def gathering(scope: GatherScope) -> Iterator[None]:
    """Within, ``scope`` answers."""
    token = _scope.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)
