"""What happens inside one CUDA kernel call, as its memory sees it.

torch's dispatcher shows a call's inputs and outputs; what the kernel allocates for itself in between it does not show.
A *rule* says it for one operator: it is called with the call and a scope, and tells the scope, in order, when a
temporary is allocated and freed and when an output comes to life::

    def convolution(call: Call, scope: Scope) -> None:
        scope.output(0)
        copy = scope.allocate(size)
        scope.free(copy)

Outputs that a rule does not mention come to life before everything else; temporaries that it does not free die with
the call.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from brim.hardware.cards import Card


@dataclass(frozen=True)
class Call:
    """One call of an operator: fake tensors have shapes, types and strides, and no data."""

    operator: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Tensor | None, ...]
    card: Card

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """An argument, wherever the caller put it."""
        return self.args[place] if place < len(self.args) else self.kwargs.get(name, default)


@dataclass(frozen=True)
class ScopeEvent:
    """One thing that happens inside: a temporary of ``size`` bytes is allocated (its number in ``temporary``) or freed
    (``size`` is -1), or an output comes to life. ``optional``: where there is no room for it, the call goes another
    way that needs none."""

    output: int | None = None
    temporary: int | None = None
    size: int = 0
    optional: bool = False


@dataclass
class Scope:
    """Collects what a rule says, in order."""

    steps: list[ScopeEvent] = field(default_factory=list)
    _allocated: int = 0
    _alive: dict[int, int] = field(default_factory=dict)

    def output(self, index: int) -> None:
        self.steps.append(ScopeEvent(output=index))

    def outputs(self, call: Call, *places: int) -> None:
        """Those of the outputs that are wanted."""
        for place in places:
            if place < len(call.outputs) and call.outputs[place] is not None:
                self.output(place)

    def allocate(self, size: int, optional: bool = False) -> int:
        """Allocate a temporary; the answer is its number, to free it with."""
        number = self._allocated
        self._allocated += 1
        self._alive[number] = size
        self.steps.append(ScopeEvent(temporary=number, size=size, optional=optional))
        return number

    def copy(self, tensor: Tensor | None, layout: torch.memory_format = torch.contiguous_format) -> int | None:
        """``tensor.contiguous(memory_format=layout)``: a temporary, unless it lies so already."""
        if tensor is None or tensor.is_contiguous(memory_format=layout):
            return None
        return self.allocate(tensor.nbytes)

    def free(self, *numbers: int | None) -> None:
        """Free temporaries, in this order; None stands for one that was not needed."""
        for number in numbers:
            if number is not None and self._alive.pop(number, None) is not None:
                self.steps.append(ScopeEvent(temporary=number, size=-1))

    def workspace(self, size: int, optional: bool = False) -> None:
        """Allocate a temporary and free it at once."""
        self.free(self.allocate(size, optional))

    def close(self) -> None:
        """The call ends: what is still held goes."""
        self.free(*list(self._alive))


Rule = Callable[[Call, Scope], None]
