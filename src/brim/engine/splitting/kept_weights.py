"""Trained weights that a loss itself writes to (clipped, renormalised, initialised by data), put back after a trial."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode


@contextmanager
def kept_weights(parameters: Sequence[nn.Parameter]) -> Iterator[Callable[[], list[nn.Parameter]]]:
    """Afterwards the parameters hold what they held, in the same memory. Yields what tells which were written to.

    A copy is made of those alone that an operator is about to write to: copying all would take a second model's memory.

    >>> import torch
    >>> weight = nn.Parameter(torch.ones(2))
    >>> with kept_weights([weight]):
    ...     _ = weight.data.mul_(3)
    >>> weight.data
    tensor([1., 1.])
    """
    plain = [one for one in parameters if type(one.data) is Tensor and not (one.is_meta or is_lazy(one))]
    held = [(parameter, parameter.data) for parameter in plain]  # by .data = the memory itself is exchanged
    written = _Written([memory for _, memory in held])
    try:
        with written:
            yield lambda: [
                parameter for parameter, memory in held if written.has(memory) or _is_elsewhere(parameter, memory)
            ]
    finally:
        for memory, copied in written.copies():
            memory.copy_(copied)
        for parameter, memory in held:
            if _is_elsewhere(parameter, memory):
                parameter.data = memory


def _is_elsewhere(parameter: nn.Parameter, memory: Tensor) -> bool:
    return parameter.data_ptr() != memory.data_ptr()


class _Written(TorchDispatchMode):
    """Copies each of some tensors before the first operator that writes to it."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watched: dict[int, list[Tensor]] = {}  # by memory: tied and flattened weights share it
        for tensor in tensors:
            self._watched.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
        self._copies: list[tuple[Tensor, Tensor]] = []

    def has(self, tensor: Tensor) -> bool:
        """Whether this one was written to."""
        return any(memory is tensor for memory, _ in self._copies)

    def copies(self) -> list[tuple[Tensor, Tensor]]:
        """What was written to, each with what it held before."""
        return self._copies

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.is_write:
                    self._keep(value)
            for argument in func._schema.arguments:
                if argument.is_write and argument.name in kwargs:
                    self._keep(kwargs[argument.name])
        return func(*args, **kwargs)

    def _keep(self, value: Any) -> None:
        for tensor in value if isinstance(value, list | tuple) else [value]:
            if isinstance(tensor, Tensor):
                for watched in self._watched.pop(tensor.untyped_storage().data_ptr(), ()):
                    self._copies.append((watched, watched.clone()))
