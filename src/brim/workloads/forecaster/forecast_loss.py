"""Losses of forecasts, over the targets that are there."""

from collections.abc import Sequence

import torch
from torch import Tensor

from brim.engine import Loss
from brim.errors import ConfigError


def check_quantiles(quantiles: Sequence[float]) -> tuple[float, ...]:
    """In their order; refused where one is none.

    >>> check_quantiles([0.9, 0.1])
    (0.1, 0.9)
    """
    odd = next((q for q in quantiles if isinstance(q, bool) or not isinstance(q, int | float) or not 0 < q < 1), None)
    if odd is not None:
        raise ConfigError(f"quantiles={list(quantiles)}: {odd!r} is not between 0 and 1; write them as [0.1, 0.5, 0.9]")
    if len(set(quantiles)) < len(quantiles):
        raise ConfigError(f"quantiles={list(quantiles)} has one of them twice")
    return tuple(sorted(float(q) for q in quantiles))


def forecast_loss(predicted: Tensor, target: Tensor, quantiles: Sequence[float] = (), loss: str = "l1") -> Loss:
    """The loss summed over the targets that are there, and how many these are; missing ones (NaN) weigh nothing.

    Args:
        predicted: (samples, horizon, channels), with a last dimension where there are ``quantiles``.
        target: (samples, horizon, channels).
        quantiles: what is predicted: the pinball loss, averaged over them.
        loss: ``"l1"`` or ``"mse"``, where there are none.
    """
    return Loss(losses_of_targets(predicted, target, quantiles, loss).sum(), target.isfinite().sum())


def losses_of_targets(predicted: Tensor, target: Tensor, quantiles: Sequence[float] = (), loss: str = "l1") -> Tensor:
    """The loss of each target, in its place; 0 where one is missing."""
    there = target.isfinite()
    wanted = torch.where(there, target, 0.0)
    if quantiles:
        # By numbers of Python's: a tensor of them would be copied to the GPU in every step, which no graph captures.
        errors = (wanted[..., None] - predicted.float()).unbind(-1)
        pinball = [torch.maximum(q * error, (q - 1) * error) for q, error in zip(quantiles, errors, strict=True)]
        values = torch.stack(pinball).mean(0)
    else:
        error = wanted - predicted.float()
        values = error.abs() if loss == "l1" else error.square()
    # where, not a product: what a network says of a missing target may be infinite.
    return torch.where(there, values, 0.0)
