"""How far forecasts are from what came: mean squared and absolute errors over the targets that are there."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from brim.data import Loader
from brim.engine import Loss
from brim.workloads.forecaster.baselines import BATCH, Naive, naive_forecasts
from brim.workloads.forecaster.data.dataset import SeriesDataset
from brim.workloads.forecaster.lstm_forecaster import LSTMForecaster

Metric = Callable[[Any, Any], Loss]
SAME = 1e-3  # of an error: less than this is rounding, or nothing


def forecast_metrics(model: LSTMForecaster) -> dict[str, Metric]:
    """What evaluations compute beside the loss: ``mse`` and ``mae`` of the point forecast, in scaled values.

    With quantiles also ``coverage``: the share of targets between the lowest and the highest of them.
    """
    metrics: dict[str, Metric] = {
        "mse": lambda outputs, batch: squared(model.point(outputs), batch[1]),
        "mae": lambda outputs, batch: absolute(model.point(outputs), batch[1]),
    }
    if len(model.quantiles) > 1:
        metrics["coverage"] = lambda outputs, batch: covered(outputs, batch[1])
    return metrics


def squared(predicted: Tensor, target: Tensor) -> Loss:
    """Squared errors, summed over the targets that are there, and how many these are."""
    return _over_there((predicted.float() - target).square(), target)


def absolute(predicted: Tensor, target: Tensor) -> Loss:
    """The same of absolute errors."""
    return _over_there((predicted.float() - target).abs(), target)


def covered(outputs: Tensor, target: Tensor) -> Loss:
    """How many targets lie between the lowest and the highest quantile."""
    lowest, highest = outputs.amin(-1), outputs.amax(-1)
    return _over_there(((target >= lowest) & (target <= highest)).float(), target)


def _over_there(values: Tensor, target: Tensor) -> Loss:
    there = target.isfinite()
    return Loss(torch.where(there, values, 0.0).sum(dtype=torch.float64), there.sum())


def naive_rows(dataset: SeriesDataset, split: str = "test") -> dict[str, dict[str, float]]:
    """``mse`` and ``mae`` of each naive forecast, on the very windows that the model is judged by."""
    return {name: score(naive, dataset, split) for name, naive in naive_forecasts(dataset).items()}


def score(naive: Naive, dataset: SeriesDataset, split: str = "test") -> dict[str, float]:
    """The errors of one forecast on the windows of a split."""
    sums = {"mse": [0.0, 0.0], "mae": [0.0, 0.0]}
    for past, target, *_ in Loader(dataset.get_split_data(split), BATCH, shuffle=False).in_order():
        predicted = naive(past)
        for name, loss in (("mse", squared(predicted, target)), ("mae", absolute(predicted, target))):
            sums[name][0] += float(loss.total)
            sums[name][1] += float(loss.count)
    return {name: total / count if count else float("nan") for name, (total, count) in sums.items()}


def told_worse(table: Mapping[str, Mapping[str, float]], metric: str, part: str) -> str | None:
    """A sentence where the first row of a table, the forecast of a run, has a higher error than others; else None."""
    (name, own), *others = table.items()
    if metric not in own:
        return None
    better = {other: row[metric] for other, row in others if row.get(metric, float("nan")) < own[metric] * (1 - SAME)}
    if not better:
        return None
    listed = ", ".join(f"{other} ({value:.4g})" for other, value in sorted(better.items(), key=lambda row: row[1]))
    return f"on the {part} part, {metric} of {name}, which this run forecasts, is {own[metric]:.4g}; lower is {listed}"
