"""Whether what was learned is worth more than the last value, as the validation part tells."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brim.data import Loader
from brim.engine.evaluation.evaluation import evaluating
from brim.workloads.forecaster.baselines import BATCH
from brim.workloads.forecaster.data.dataset import SeriesDataset
from brim.workloads.forecaster.forecast_loss import losses_of_targets
from brim.workloads.forecaster.lstm_forecaster import LSTMForecaster

LEAST_BLOCKS = 5  # horizons in the validation part: of fewer, a spread says little
SURE = 2.0  # standard errors
RESAMPLES = 2000

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ValidationGain:
    """How much lower the validation loss is than with the last value as the forecast, and the standard error of that.

    Both are shares of the loss with the last value.
    """

    share: float
    error: float

    @property
    def is_sure(self) -> bool:
        return self.share > SURE * self.error

    def __str__(self) -> str:
        above = "below" if self.share >= 0 else "above"
        return (
            f"{abs(self.share):.1%} {above} that of repeating the last value, with a standard error of {self.error:.1%}"
        )


def gain_over_last(model: LSTMForecaster, dataset: SeriesDataset) -> ValidationGain | None:
    """The gain on the validation part; None where this has too few windows to tell, or the model no median.

    Windows one step apart share most of their targets. So the error is that of resampled blocks of them, as many steps
    as the horizon has, and windows of several series at one time stay together.
    """
    starts = dataset.starts("validation")
    steps = _steps_of(dataset, starts)
    if (model.quantiles and 0.5 not in model.quantiles) or steps.max() + 1 < LEAST_BLOCKS * dataset.horizon:
        return None
    own, last = _losses(model, dataset)
    if not last.sum():  # a constant, which the last value is exactly right about
        return ValidationGain(-np.inf if own.sum() else 0.0, 0.0)
    shares = np.bincount(steps, (last - own) / last.sum())
    return ValidationGain(float(shares.sum()), float(_resampled(shares, dataset.horizon).std()))


def _steps_of(dataset: SeriesDataset, starts: Tensor) -> Array:
    """How many steps each window begins after the first one of its series."""
    series = dataset.series_of(starts)
    first = np.searchsorted(series, series)  # windows come series by series
    found: Array = (starts - starts[torch.from_numpy(first)]).numpy()
    return found


def _losses(model: LSTMForecaster, dataset: SeriesDataset) -> tuple[Array, Array]:
    """The loss of each validation window: with what was learned, and with the last value."""
    home = next(model.parameters())
    own: list[Tensor] = []
    last: list[Tensor] = []
    with evaluating(model):
        for batch in Loader(dataset.get_split_data("validation"), BATCH, shuffle=False).in_order():
            past, target, *more = (column.to(home.device) for column in batch)
            learned = model.predict([one.to(home.dtype) for one in (past, target, *more)]).float()
            for kept, predicted in ((own, learned), (last, model.around_last(learned, past))):
                losses = losses_of_targets(predicted, target, model.quantiles, model.loss)
                kept.append(losses.sum((1, 2), dtype=torch.float64).cpu())
    return torch.cat(own).numpy(), torch.cat(last).numpy()


def _resampled(at_step: Array, length: int) -> Array:
    """The sum again for blocks of ``length`` steps drawn anew, the first step following the last."""
    count = len(at_step)
    sums = np.cumsum(np.concatenate([[0.0], at_step, at_step[:length]]))
    blocks = sums[length:][:count] - sums[:count]
    drawn = np.random.default_rng(0).integers(count, size=(RESAMPLES, -(-count // length)))
    return np.asarray(blocks[drawn].mean(1) * count / length)
