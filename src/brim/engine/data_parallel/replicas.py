"""Copies of a model on several devices, which live for one step. Gradients find their way back to the model.

The copies are torch's (``torch.nn.parallel.replicate``). What its DataParallel does otherwise, and changes a training:

- It gives a gradient of zeros to a weight that no copy has used, where one device gives none: AdamW would let such a
  weight decay. Here it has none.
- Its copies have no ``parameters()``: a loss with a term over all weights would silently be one without it.
- A ``forward`` that was replaced on a module, as activation checkpointing does, would compute with the first device's
  weights everywhere.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel, comm, replicate
from torch.nn.parameter import is_lazy

from brim.uncompiled import module_within

Replicate = Callable[[nn.Module, Sequence[torch.device]], list[Any]]
"""Makes a copy of a model for each device, with detached tensors; the first one has the model's own."""
LIBRARIES = ("torch.", "transformers.", "peft.")  # what their modules set in forward is theirs to find again
ONE_GPU = "or train on one GPU (use_multi_gpu=False)"


def torch_replicate(model: nn.Module, devices: Sequence[torch.device]) -> list[Any]:
    return replicate(model, devices, detach=True)


class Replicas:
    """The copies of ``model``, one for each of ``devices``; the model itself stands on the first of them.

    Buffers of the first copy are the model's own, so what is written into them stays: statistics of norms are those of
    the first device's share.
    """

    def __init__(
        self, model: nn.Module, devices: Sequence[torch.device], make: Replicate = torch_replicate, notes: bool = False
    ) -> None:
        self.models = make(model, devices)
        self._originals = list(model.modules())
        self._copies: list[list[nn.Module]] = [list(copy.modules()) for copy in self.models]
        self._bind_methods()
        self._link_parameters(devices[0])
        self._buffers = [dict(module._buffers) for module in self._copies[0]]
        self._attributes = [dict(vars(module)) for module in self._copies[0]] if notes else []

    def _link_parameters(self, home: torch.device) -> None:
        """Make the copies' parameters functions of the model's, and put them where ``parameters()`` finds them."""
        numbers: dict[nn.Parameter, int] = {}  # a shared parameter has one
        slots = [
            (place, name, numbers.setdefault(parameter, len(numbers)))
            for place, module in enumerate(self._originals)
            for name, parameter in module._parameters.items()
            if parameter is not None
        ]
        rows = [{number: getattr(copies[place], name) for place, name, number in slots} for copies in self._copies]
        trained = {parameter: number for parameter, number in numbers.items() if parameter.requires_grad}
        if trained and torch.is_grad_enabled():
            rows[0].update({number: parameter.data for parameter, number in trained.items()})  # no view of a leaf
            detached = [[row[number] for number in trained.values()] for row in rows]
            linked = iter(_Link.apply(home, detached, *trained))  # type: ignore[no-untyped-call]
            for row in rows:
                row.update({number: next(linked) for number in trained.values()})
        for copies, row in zip(self._copies, rows, strict=True):
            for place, name, number in slots:
                _set_parameter(copies[place], name, row[number])

    def _bind_methods(self) -> None:
        """Methods that were put on a module, and not on its class, belong to the copy from here on."""
        places = {id(original): number for number, original in enumerate(self._originals)}
        for number, original in enumerate(self._originals):
            for name, value in vars(original).items():
                if type(value) is MethodType and id(value.__self__) in places:
                    for copies in self._copies:
                        owner = copies[places[id(value.__self__)]]
                        copies[number].__dict__[name] = MethodType(value.__func__, owner)

    def keep_buffers(self) -> None:
        """A buffer that the first copy has set anew (encodings computed at first use, say) is the model's from now."""
        for original, copy, before in zip(self._originals, self._copies[0], self._buffers, strict=True):
            for name, buffer in copy._buffers.items():
                if buffer is not before.get(name):
                    original._buffers[name] = buffer

    def lost_state(self) -> list[str]:
        """Names of what users' modules have set on the first copy, which goes with it. Needs ``notes``."""
        found = []
        for copy, before in zip(self._copies[0], self._attributes, strict=True):
            if not type(copy).__module__.startswith(LIBRARIES):
                changed = [name for name, value in vars(copy).items() if value is not before.get(name, before)]
                # Recurrent modules look for their weights anew.
                found += [f"{type(copy).__name__}.{name}" for name in changed if not name.startswith("_flat_weight")]
        return list(dict.fromkeys(found))


def _set_parameter(module: Any, name: str, tensor: Tensor) -> None:
    """Put a tensor that is no leaf where a parameter stands, which torch's own way of setting it would refuse."""
    module._parameters.pop(name, None)
    setattr(module, name, tensor)  # recurrent modules keep a list of theirs as well
    module.__dict__.pop(name, None)
    module._parameters[name] = tensor


class _Link(torch.autograd.Function):
    """The parameters as all copies see them; backwards, what the copies' gradients add up to."""

    @staticmethod
    def forward(ctx: Any, home: torch.device, copies: list[list[Tensor]], *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # what nobody has used has no gradient
        ctx.home, ctx.width = home, len(parameters)
        return tuple(chain.from_iterable(copies))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        rows = [gradients[start : start + ctx.width] for start in range(0, len(gradients), ctx.width)]
        return (None, None, *add_up(rows, ctx.home))


def add_up(rows: Sequence[Sequence[Tensor | None]], home: torch.device) -> list[Tensor | None]:
    """Add the gradients of all devices, one row for each, on ``home``; None where none of them has one."""
    columns = [[gradient for gradient in column if gradient is not None] for column in zip(*rows, strict=True)]
    totals: list[Tensor | None] = [None] * len(columns)
    # Those that all devices have go together, over NCCL where it can. It knows no complex numbers.
    together = [
        number
        for number, column in enumerate(columns)
        if home.type == "cuda" and len(column) == len(rows) and not column[0].is_complex()
    ]
    if together:
        dense = [[columns[number][device] for number in together] for device in range(len(rows))]
        added = comm.reduce_add_coalesced(dense, home.index)  # type: ignore[no-untyped-call]
        for number, total in zip(together, added, strict=True):
            totals[number] = total
    for number, column in enumerate(columns):
        if totals[number] is None and column:
            total = column[0].to(home)
            for gradient in column[1:]:
                total = total + gradient.to(home)
            totals[number] = total
    return totals


def why_not_replicable(model: nn.Module, home: torch.device) -> str | None:
    """A sentence where a model cannot be copied to other devices for every step; None where it can.

    >>> why_not_replicable(nn.Linear(2, 1), torch.device("cpu")) is None
    True
    """
    for path, module in model.named_modules():
        name = path or type(module).__name__
        if isinstance(module, torch.jit.ScriptModule):
            return f"{name} is a ScriptModule, whose copies cannot be trained; hand over the Python module, {ONE_GPU}"
        if isinstance(module, DataParallel | DistributedDataParallel):
            return f"{name} is wrapped in {type(module).__name__} already; hand over its .module"
        if module_within(module) is not module or module._compiled_call_impl is not None:
            return f"{name} is compiled for one device; hand over the module as it was before torch.compile, {ONE_GPU}"
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if is_lazy(tensor):
            return f"{name} has no shape yet; send one batch through the model first, {ONE_GPU}"
        if hasattr(tensor, "device_mesh"):
            return f"{name} is sharded already; hand over the whole model"
        if tensor.device != home:
            return (
                f"{name} is on {tensor.device}, and only a model that is on {home} whole can be copied; {ONE_GPU[3:]}"
            )
    return None
