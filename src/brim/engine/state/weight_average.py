"""An exponential moving average of the weights (EMA), by torch's function for it."""

import copy
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from brim.engine.state.fingerprint import as_bytes
from brim.errors import CannotFit, ConfigError, a_type, first_line


class KeepsAverage(Protocol):
    """The average of a model's weights: of a whole model, or of the shards that a rank holds."""

    @property
    def module(self) -> nn.Module: ...

    def update(self, model: nn.Module) -> None: ...

    def in_place(self, model: nn.Module) -> AbstractContextManager[None]: ...

    def copy_to(self, model: nn.Module) -> None: ...

    def state(self, model: nn.Module, keep: bool = True) -> dict[str, Any]: ...

    def restore(self, saved: dict[str, Any], model: nn.Module) -> None: ...


class WeightAverage:
    """The average of a model's weights over its optimizer steps: ``average = decay * average + (1 - decay) * weights``.

    It begins with the weights after the first step, as torch's ``AveragedModel`` does. Buffers are not averaged:
    statistics of norms are the model's. Of weights in 16 bits the average has 32: with a decay of 0.999 one of 8 bits
    would never move. ``module`` is the model with the averaged weights.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> average = WeightAverage(model, 0.5)
    >>> for value in (1.0, 2.0):
    ...     _ = nn.init.constant_(model.weight, value)
    ...     average.update(model)
    >>> average.module.weight.item()
    1.5
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._steps = 0
        self._is_in_place = False
        self.module = self._copy_of(model)

    @torch.no_grad()  # scripted modules copy their weights by an operator
    def _copy_of(self, model: nn.Module) -> nn.Module:
        try:
            made = copy.deepcopy(model)
            if type(made) is not type(model):  # one that answers to any name has a __deepcopy__ as well
                raise TypeError(f"copy.deepcopy(model) returns {a_type(made)}")
        except Exception as error:  # whatever a model does when it is copied
            told = f"ema={self.decay} needs a copy of the model, which cannot be made: {first_line(error)}"
            raise ConfigError(told) from error
        for parameter in made.parameters():  # scripted modules have no requires_grad_
            parameter.requires_grad_(False)
        made._apply(lambda tensor: tensor.to(average_dtype(tensor.dtype)))  # type: ignore[no-untyped-call]
        return made

    @property
    def has_begun(self) -> bool:
        return self._steps > 0

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """After an optimizer step."""
        pairs = self._pairs(model)
        if self.has_begun:
            take_in([averaged for _, averaged in pairs], [own for own, _ in pairs], self.decay)
        else:
            for own, averaged in pairs:
                averaged.copy_(own)
        modules = dict(self.module.named_modules())
        for name, theirs in model.named_modules():
            if theirs._buffers and name in modules:
                _copy_buffers(modules[name], theirs)
        self._steps += 1

    def _pairs(self, model: nn.Module) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """Each weight with its average, also where callbacks have tied weights or put in others since."""
        own, averaged = list(model.parameters()), list(self.module.parameters())
        if [weight.shape for weight in own] != [average.shape for average in averaged]:
            self._follow(model)
            averaged = list(self.module.parameters())
        return list(zip(own, averaged, strict=True))

    @torch.no_grad()
    def _follow(self, model: nn.Module) -> None:
        """Be a copy of the model as it is now: an average goes on under its name, a new weight begins with itself."""
        before = dict(self.module.named_parameters(remove_duplicate=False))
        self.module = self._copy_of(model)
        for name, average in self.module.named_parameters():
            if name in before and before[name].shape == average.shape:
                average.copy_(before[name])

    @contextmanager
    def in_place(self, model: nn.Module) -> Iterator[None]:
        """The model has the averaged weights meanwhile, in its own memory: captured graphs read them there."""
        if not self.has_begun or self._is_in_place:  # by an evaluation within an evaluation
            yield
            return
        pairs = self._pairs(model)
        kept = swap_in(pairs)
        lent = [averaged.data for _, averaged in pairs]  # where the trained weights are, of those that changed places
        for (own, averaged), weight in zip(pairs, kept, strict=True):
            if weight is None:
                averaged.data = own.data  # so whoever looks at the averaged model sees the average meanwhile, too
        self._is_in_place = True
        try:
            yield
        finally:
            for (_, averaged), memory in zip(pairs, lent, strict=True):
                averaged.data = memory
            swap_out(pairs, kept)
            self._is_in_place = False

    @torch.no_grad()
    def copy_to(self, model: nn.Module) -> None:
        """Let the model have the averaged weights, for good."""
        if self.has_begun:
            for own, averaged in self._pairs(model):
                own.copy_(averaged)

    def state(self, model: nn.Module, keep: bool = True) -> dict[str, Any]:
        """For a checkpoint, which has the model's weights as well: the average of a frozen one is that itself.

        ``keep`` is for averages in shards, which all ranks gather and one keeps.
        """
        self._pairs(model)  # from here on the names are the model's
        averaged = {name: parameter.detach() for name, parameter in self.module.named_parameters()}
        same = [
            name
            for name, parameter in model.named_parameters()
            if not parameter.requires_grad and _is_same(parameter.detach(), averaged[name])
        ]
        kept = {name: average for name, average in averaged.items() if name not in set(same)}
        return {"decay": self.decay, "steps": self._steps, "weights": kept, "as_model": same}

    @torch.no_grad()
    def restore(self, saved: dict[str, Any], model: nn.Module) -> None:
        """Become what :meth:`state` gave; the model has its weights of then."""
        same = set(saved.get("as_model", ()))
        theirs = {name: parameter.detach() for name, parameter in model.named_parameters() if name in same}
        weights: dict[str, Tensor] = {**theirs, **saved["weights"]}
        own = dict(self.module.named_parameters())
        check_saved(saved, list(own), self.decay)
        for name, parameter in own.items():
            parameter.copy_(weights[name])
        self._steps = int(saved["steps"])


def _copy_buffers(own: nn.Module, theirs: nn.Module) -> None:
    """Let a module have another one's buffers: a forward pass may fill or register one, or give it another shape."""
    for name, buffer in theirs._buffers.items():
        known = dict(own._buffers).get(name)
        if buffer is not None and known is not None and known.shape == buffer.shape:
            known.copy_(buffer)
        else:
            own._buffers[name] = None if buffer is None else buffer.to(average_dtype(buffer.dtype), copy=True)
            own._non_persistent_buffers_set |= {name} & theirs._non_persistent_buffers_set


def check_saved(saved: dict[str, Any], names: Collection[str], decay: float) -> None:
    """Refuse the averaged weights of another model, or of another decay."""
    theirs = {*saved["weights"], *saved.get("as_model", ())}  # earlier versions wrote all
    if set(names) != theirs or saved["decay"] != decay:
        raise ValueError(
            f"its averaged weights are those of ema={saved['decay']} and {len(theirs)} parameters, and this run "
            f"has ema={decay} and {len(names)}"
        )


def average_dtype(weights: torch.dtype) -> torch.dtype:
    """What the average of weights of this type is kept in."""
    return torch.float32 if weights in (torch.bfloat16, torch.float16) else weights


@torch.no_grad()
def take_in(averages: Sequence[Tensor], weights: Sequence[Tensor], decay: float) -> None:
    """Move averages on by the weights of now, as torch's function for it does: all at once where it can be.

    Whole numbers (quantized weights) are no averages but those of now: torch would round them towards zero.
    """
    pairs = [(average.detach(), weight.detach()) for average, weight in zip(averages, weights, strict=True)]
    alike = [(a, w) for a, w in pairs if a.dtype == w.dtype and (w.is_floating_point() or w.is_complex())]
    if alike:
        get_ema_multi_avg_fn(decay)([a for a, _ in alike], [w for _, w in alike], None)  # type: ignore[no-untyped-call]
    for average, weight in pairs:
        if average.dtype != weight.dtype:  # one after the other: their longer copies are as large as they are
            average.lerp_(weight.to(average.dtype), 1 - decay)
        elif not (weight.is_floating_point() or weight.is_complex()):
            average.copy_(weight)


@torch.no_grad()
def swap_in(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor | None]:
    """Let weights, the first of each pair, have their averages; returns what :func:`swap_out` needs.

    The average's memory takes the weights meanwhile, so there is no third copy. Only an average of more bits than the
    weight cannot be had back from it: there the weight is kept beside.

    Raises:
        CannotFit: where there is no memory for that; then everything is as it was.
    """
    kept: list[Tensor | None] = []
    try:
        for own, averaged in pairs:
            weight = own.detach().clone()
            own.copy_(averaged)
            is_alike = own.dtype == averaged.dtype
            if is_alike:
                averaged.copy_(weight)
            kept.append(None if is_alike else weight)
    except torch.OutOfMemoryError as error:
        swap_out(pairs[: len(kept)], kept)
        raise CannotFit(
            "there is no memory to put averaged weights in the place of the trained ones for an evaluation; use a "
            "smaller micro_batch, or leave ema out"
        ) from error
    return kept


@torch.no_grad()
def swap_out(pairs: Sequence[tuple[Tensor, Tensor]], kept: Sequence[Tensor | None]) -> None:
    """Undo :func:`swap_in`."""
    for (own, averaged), weight in zip(pairs, kept, strict=True):
        if weight is None:
            weight = averaged.detach().clone()
            averaged.copy_(own)
        own.copy_(weight)


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one.device == other.device and torch.equal(as_bytes(one), as_bytes(other))
