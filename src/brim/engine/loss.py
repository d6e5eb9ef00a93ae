"""Losses as sums and counts, so that slices of a batch add up to the batch."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from brim.data import Batch
from brim.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Loss:
    """A summed loss and what it was summed over: samples, tokens, weights.

    Return it from ``calculate_loss`` when samples weigh differently. The optimizer sees the sum of all totals over the
    sum of all counts, however the batch is sliced; a mean of means would not be the same.

    >>> import torch
    >>> tokens = torch.tensor([2.0, 4.0, 6.0])
    >>> Loss(tokens.sum(), 3).mean
    tensor(4.)
    """

    total: Tensor
    count: Tensor | float

    @property
    def mean(self) -> Tensor:
        """The total over the count; where nothing was counted, the total, so that no 0 / 0 reaches the weights."""
        return self.total / (self.count + (self.count == 0))


LossOf = Callable[[Batch], Tensor | Loss]
LossFunction = Callable[..., Any]


def loss_of(model: nn.Module, loss_fn: LossFunction | None) -> LossOf:
    """The loss of a batch, from whichever of the three forms the user chose.

    The model's own ``calculate_loss(batch)``; a criterion of torch's such as ``nn.MSELoss()`` or
    ``torch.nn.functional.mse_loss``, for batches of (inputs, target); or any ``function(model, batch)``.
    """
    if loss_fn is None:
        calculate = getattr(model, "calculate_loss", None)
        if calculate is None:
            raise ConfigError(
                f"{type(model).__name__} has no calculate_loss(batch) and no loss_fn was given; "
                "pass loss_fn=nn.MSELoss() for (inputs, target) batches, or loss_fn=lambda model, batch: ..."
            )
        return calculate  # type: ignore[no-any-return]
    if is_criterion(loss_fn):
        return _Criterion(model, loss_fn)
    return lambda batch: loss_fn(model, batch)


def is_criterion(loss_fn: LossFunction) -> bool:
    """Whether ``loss_fn`` compares an output with a target, as torch's losses do, instead of taking (model, batch)."""
    if isinstance(loss_fn, nn.Module):
        return True
    try:
        return next(iter(inspect.signature(loss_fn).parameters), None) == "input"
    except (TypeError, ValueError):  # built-in functions have no signature
        return getattr(loss_fn, "__module__", "").startswith("torch.")


class _Criterion:
    """``criterion(model(inputs), target)``, with the count by which torch's own mean divides."""

    def __init__(self, model: nn.Module, criterion: LossFunction) -> None:
        if isinstance(criterion, nn.Module) and any(p.requires_grad for p in criterion.parameters()):
            raise ConfigError(
                "loss_fn has parameters of its own, which nobody would train; make it a part of the model"
            )
        criterion = {F.cross_entropy: nn.CrossEntropyLoss(), F.nll_loss: nn.NLLLoss()}.get(criterion, criterion)
        reduction = getattr(criterion, "reduction", "mean")
        if reduction not in ("mean", "batchmean"):
            raise ConfigError(
                f"loss_fn has reduction={reduction!r}; use reduction='mean', or a function of (model, batch) "
                "that returns brim.Loss(total, count)"
            )
        self.model = model
        self.criterion = criterion
        # These two divide by the weight of the targets that count, not by the number of samples.
        self.summed: nn.Module | None = None
        if isinstance(criterion, nn.CrossEntropyLoss | nn.NLLLoss):
            self.summed = copy.copy(criterion)
            self.summed.reduction = "sum"

    def __call__(self, batch: Batch) -> Tensor | Loss:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise ConfigError(
                "loss_fn compares an output with a target, so batches must be (inputs, target) pairs; "
                "for other batches pass loss_fn=lambda model, batch: ..."
            )
        inputs, target = batch
        output = self.model(inputs)
        if self.summed is not None and not target.is_floating_point():
            # The sum, not mean times count: where every target is ignored the mean is 0 / 0, and so is its gradient.
            return Loss(self.summed(output, target), target_weight(self.criterion, target))
        mean: Tensor = self.criterion(output, target)
        return mean


def target_weight(criterion: Any, target: Tensor) -> Tensor:
    """What CrossEntropyLoss and NLLLoss divide by: the summed class weight of the targets that are not ignored."""
    counted: Tensor = target != criterion.ignore_index
    if criterion.weight is None:
        return counted.sum()
    weights: Tensor = criterion.weight[target.where(counted, 0)] * counted
    return weights.sum()


def as_sum(loss: Tensor | Loss, samples: int) -> Loss:
    """Any accepted return value as a sum; a bare tensor is the mean over ``samples``."""
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        shape = f"of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"({type(loss).__name__})"
        raise ConfigError(
            f"the loss must be a scalar tensor, the mean over the batch, or brim.Loss(total, count); got one {shape}"
        )
    return Loss(loss.float() * samples, samples)  # half precision would overflow at 65,504


def predict_batch(model: nn.Module, batch: Batch, loss_fn: LossFunction | None) -> Any:
    """The model's output for a batch: its own ``predict(batch)``, or a plain call."""
    own = getattr(model, "predict", None)
    if own is not None:
        return own(batch)
    if loss_fn is not None and is_criterion(loss_fn) and isinstance(batch, tuple | list):
        return model(batch[0])
    if isinstance(batch, tuple | list):
        if len(batch) == 1:
            return model(batch[0])
        raise ConfigError(
            f"{type(model).__name__} has no predict(batch), and which of a batch's {len(batch)} parts it should see is "
            "unknown; give it one, or hand over the inputs alone"
        )
    return model(batch)
