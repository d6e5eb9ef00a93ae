"""What happens inside one CUDA kernel call, as its memory sees it.

torch's dispatcher shows a call's inputs and outputs; what the kernel allocates for itself in between it does not show.
A *rule* says it for one operator: it is called with the call and a scope, and tells the scope, in order, when a
temporary is taken and given back and when an output comes to life::

    def convolution(call: Call, scope: Scope) -> None:
        scope.output(0)
        workspace = scope.take(size)
        scope.give(workspace)

Outputs that a rule does not mention come to life before everything else; temporaries that it does not give back die
with the call.
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
class Step:
    """One thing that happens inside: a temporary of ``size`` bytes is taken (its number in ``temporary``) or given
    back (``size`` is -1), or an output comes to life. ``optional``: where there is no room for it, the call goes
    another way that needs none."""

    output: int | None = None
    temporary: int | None = None
    size: int = 0
    optional: bool = False


@dataclass
class Scope:
    """Collects what a rule says, in order."""

    steps: list[Step] = field(default_factory=list)
    _taken: int = 0
    _alive: dict[int, int] = field(default_factory=dict)

    def output(self, index: int) -> None:
        self.steps.append(Step(output=index))

    def outputs(self, call: Call, *places: int) -> None:
        """Those of the outputs that are wanted."""
        for place in places:
            if place < len(call.outputs) and call.outputs[place] is not None:
                self.output(place)

    def take(self, size: int, optional: bool = False) -> int:
        """A temporary comes to life; the answer is its number, to give it back with."""
        number = self._taken
        self._taken += 1
        self._alive[number] = size
        self.steps.append(Step(temporary=number, size=size, optional=optional))
        return number

    def copy(self, tensor: Tensor | None, layout: torch.memory_format = torch.contiguous_format) -> int | None:
        """``tensor.contiguous(memory_format=layout)``: a temporary, unless it lies so already."""
        if tensor is None or tensor.is_contiguous(memory_format=layout):
            return None
        return self.take(tensor.nbytes)

    def give(self, *numbers: int | None) -> None:
        """Temporaries go, in this order; None stands for one that was not needed."""
        for number in numbers:
            if number is not None and self._alive.pop(number, None) is not None:
                self.steps.append(Step(temporary=number, size=-1))

    def passing(self, size: int, optional: bool = False) -> None:
        """A temporary that is taken and given back at once: a workspace."""
        self.give(self.take(size, optional))

    def close(self) -> None:
        """The call ends: what is still held goes."""
        self.give(*list(self._alive))


Rule = Callable[[Call, Scope], None]
