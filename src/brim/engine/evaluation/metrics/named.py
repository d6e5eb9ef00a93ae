"""Metrics by name."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from brim.arguments.nearest import nearest
from brim.engine.evaluation.metrics.class_axis import finish_by_axis, sums_by_axis
from brim.engine.evaluation.metrics.classes import ClassScores
from brim.engine.evaluation.metrics.seen_batch import WRITE_A_FUNCTION, SeenBatch
from brim.engine.evaluation.metrics.summed_metric import (
    SummedMetric,
    Sums,
    accumulation_dtype,
    ratio,
    sums_of_masks,
    total_and_count,
)
from brim.errors import ConfigError

PERPLEXITY = "perplexity"  # of the loss alone: it needs no outputs


def named_metric(name: str) -> SummedMetric:
    """The metric of this name, or a sentence with the nearest one.

    >>> named_metric("accuracy").higher_is_better
    True
    """
    key = ALIASES.get(name, name)
    if key not in NAMED:
        near = ELSEWHERE.get(name) or nearest(str(name), [*NAMED, PERPLEXITY])
        known = f"use {', '.join([*NAMED, PERPLEXITY])}, a function of (outputs, batch) or an object of torchmetrics"
        hint = known if near is None else f"did you mean {near!r}?"
        raise ConfigError(f"metrics={name!r} is not known; {hint}")
    part, finish, higher = NAMED[key]
    return SummedMetric(name, part, finish, higher)


def _top(found: ClassScores, most: int) -> Tensor:
    """How many targets are among the ``most`` best scores, and how many there are."""
    if most == 1:
        hits = found.predicted == found.true
    else:
        best = found.scores.topk(min(most, found.scores.shape[-1]), -1).indices
        hits = (best == found.true[..., None]).any(-1)
    return sums_of_masks(hits & found.counts, found.counts)


def _by_class(found: ClassScores) -> Tensor:
    """Hits, predictions and targets of every class, one after the other for each class."""
    every = torch.arange(found.scores.shape[-1], device=found.true.device)
    counts = found.counts.reshape(-1, 1)
    predicted = (found.predicted.reshape(-1, 1) == every) & counts
    true = (found.true.reshape(-1, 1) == every) & counts
    sums = torch.stack([(predicted & true).sum(0), predicted.sum(0), true.sum(0)], 1)
    return sums.flatten().to(accumulation_dtype(sums.device))


def _over_classes(of_class: Callable[[float, float, float], float], sums: Sums) -> float:
    """Of class 1 where there are two; else the mean over the classes that occur, as target or prediction."""
    classes = [(sums[at], sums[at + 1], sums[at + 2]) for at in range(0, len(sums), 3)]
    if len(classes) == 2:
        return of_class(*classes[1])
    found = [of_class(*counts) for counts in classes if counts[1] or counts[2]]
    return math.fsum(found) / len(found) if found else math.nan


def _f1(hits: float, predicted: float, true: float) -> float:
    return 2 * hits / (predicted + true) if predicted + true else 0.0


def _precision(hits: float, predicted: float, true: float) -> float:
    return hits / predicted if predicted else 0.0


def _recall(hits: float, predicted: float, true: float) -> float:
    return hits / true if true else 0.0


def _difference(seen: SeenBatch) -> tuple[Tensor, Tensor]:
    """Output minus target, and the target, in at least single precision."""
    output, target = seen.prediction, seen.target
    if output.shape == (*target.shape, 1) or target.shape == (*output.shape, 1):
        output, target = output.reshape(len(output), -1), target.reshape(len(target), -1)
    if output.shape != target.shape:
        raise ConfigError(
            f"outputs of shape {tuple(output.shape)} cannot be compared one by one with a target of shape "
            f"{tuple(target.shape)}; {WRITE_A_FUNCTION}"
        )
    exact = torch.promote_types(torch.float32, torch.promote_types(output.dtype, target.dtype))
    target = target.to(exact)
    return output.to(exact) - target, target


def _squared(seen: SeenBatch) -> Tensor:
    apart = _difference(seen)[0].to(accumulation_dtype(seen.prediction.device))
    return total_and_count(apart.square().sum(), apart.numel())


def _absolute(seen: SeenBatch) -> Tensor:
    apart = _difference(seen)[0].to(accumulation_dtype(seen.prediction.device))
    return total_and_count(apart.abs().sum(), apart.numel())


def _explained(seen: SeenBatch) -> Tensor:
    """For each number that a sample is to be given: what the coefficient of determination is made of."""
    apart, target = (
        tensor.reshape(len(tensor), -1).to(accumulation_dtype(tensor.device)) for tensor in _difference(seen)
    )
    count = torch.full_like(target[0], len(target))
    return torch.stack([apart.square().sum(0), target.square().sum(0), target.sum(0), count], 1).flatten()


def _r2(sums: Sums) -> float:
    """The mean over what a sample is to be given; NaN where a target never moves."""
    found = []
    for at in range(0, len(sums), 4):
        residual, squares, total, count = sums[at : at + 4]
        spread = squares - total**2 / count if count else 0.0
        found.append(1 - residual / spread if spread > 0 else math.nan)
    return math.fsum(found) / len(found) if found else math.nan


Named = tuple[Callable[[SeenBatch], Tensor], Callable[[Sums], float], bool]


def _of_classes(sums_of: Callable[[ClassScores], Tensor], finish: Callable[[Sums], float]) -> Named:
    return partial(sums_by_axis, sums_of), partial(finish_by_axis, finish), True


NAMED: dict[str, Named] = {
    "accuracy": _of_classes(partial(_top, most=1), ratio),
    "top5_accuracy": _of_classes(partial(_top, most=5), ratio),
    "f1": _of_classes(_by_class, partial(_over_classes, _f1)),
    "precision": _of_classes(_by_class, partial(_over_classes, _precision)),
    "recall": _of_classes(_by_class, partial(_over_classes, _recall)),
    "mse": (_squared, ratio, False),
    "rmse": (_squared, lambda sums: math.sqrt(ratio(sums)), False),
    "mae": (_absolute, ratio, False),
    "r2": (_explained, _r2, True),
}
ALIASES = {"acc": "accuracy", "top5": "top5_accuracy", "f1_score": "f1"}
# Those of Keras tell labels from one-hot targets, which the batch itself tells here.
ELSEWHERE = {
    "categorical_accuracy": "accuracy", "sparse_categorical_accuracy": "accuracy", "binary_accuracy": "accuracy",
    "mean_squared_error": "mse", "mean_absolute_error": "mae", "root_mean_squared_error": "rmse", "r2_score": "r2",
}  # fmt: skip
