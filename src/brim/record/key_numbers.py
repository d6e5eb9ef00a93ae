"""The few numbers of a run that one wants to know first."""

import re
from collections.abc import Iterator
from typing import Any

from brim.record.series import Point, as_number

LOWER_IS_BETTER = ("loss", "mae", "mse", "rmse", "mape", "smape", "error", "perplexity", "quantile", "pinball")
LOWER = {*LOWER_IS_BETTER, "nll", "kl", "wer", "cer", "fid", "brier", "hinge", "entropy", "divergence", "errors", "ppl"}
HIGHER = {
    "accuracy", "acc", "f1", "fbeta", "precision", "recall", "auc", "auroc", "auprc", "ap", "map", "r2", "iou", "miou",
    "dice", "jaccard", "bleu", "rouge", "ndcg", "mrr", "hit", "hr", "psnr", "ssim", "pearson", "spearman", "mcc",
    "kappa", "specificity", "sensitivity", "correlation",
}  # fmt: skip
EVALUATION = "eval/"
MEMORY = "memory_"


def key_numbers(series: dict[str, list[Point]], events: list[dict[str, Any]], result: dict[str, Any]) -> dict[str, Any]:
    """Steps, epochs, seconds, best evaluation, speed and peak memory; None where the run does not say.

    >>> key_numbers({"loss": [Point(5, 0.1, 1, 20.0), Point(9, 0.1, 2, 23.5)]}, [], {})["seconds"]
    3.5
    """
    lasts = [points[-1] for points in series.values()]
    times = list(_times(series, events))
    return {
        "steps": _told(result, "steps", max((last.step for last in lasts), default=None)),
        "epochs": _told(result, "epochs", max((last.epoch for last in lasts), default=None)),
        "seconds": _told(result, "seconds", as_number(max(times) - min(times)) if times else None),
        "best": best_evaluation(series, result),
        "samples_per_second": typical(series.get("samples_per_second", [])),
        "step_ms": typical(series.get("step_ms", [])),
        "peak_memory": _peak_memory(series),
    }


def started_at(series: dict[str, list[Point]], events: list[dict[str, Any]]) -> float:
    """When the run first wrote anything, in unix seconds; 0 if it never did."""
    return min(_times(series, events), default=0.0)


def is_lower_better(metric: str) -> bool:
    """Whether a metric is an error, by its name.

    >>> is_lower_better("rmse@24"), is_lower_better("ndcg@10")
    (True, False)
    """
    return metric.rsplit("/", 1)[-1].split("@")[0].rsplit("_", 1)[-1].lower() in LOWER_IS_BETTER


def is_higher_better(metric: str) -> bool | None:
    """By the words of its name; None where they do not tell.

    >>> is_higher_better("clean/top5_accuracy"), is_higher_better("val_loss"), is_higher_better("beauty")
    (True, False, None)
    """
    words = set(re.split(r"[^a-z0-9]+", metric.rsplit("/", 1)[-1].lower()))
    is_lower, is_higher = bool(words & LOWER), bool(words & HIGHER)
    return None if is_lower == is_higher else is_higher


def typical(points: list[Point]) -> float | None:
    """The median over steps: a point stands for the steps since the one before it.

    >>> typical([Point(1, 90.0, 1, 0.0), Point(2, 80.0, 1, 0.0), Point(50, 5.0, 1, 0.0), Point(100, 6.0, 2, 0.0)])
    6.0
    """
    spans = [
        (point.value, point.step - before)
        for before, point in zip([0, *(p.step for p in points)], points, strict=False)
    ]
    known = sorted((value, span) for value, span in spans if value is not None)
    half, passed = sum(span for _, span in known) / 2, 0
    for value, span in known:
        passed += span
        if passed >= half:
            return as_number(value)
    return None


def best_evaluation(series: dict[str, list[Point]], result: dict[str, Any]) -> dict[str, Any] | None:
    """The best evaluation by the metric that the run watched: as the result says, else ndcg, else the first one."""
    names = [name for name, points in series.items() if name.startswith(EVALUATION) and _values(points)]
    if not names:
        return None
    told = f"{EVALUATION}{result.get('monitor')}"
    by_ndcg = next((name for name in names if name.startswith(f"{EVALUATION}ndcg")), names[0])
    name = told if told in names else by_ndcg
    higher = result.get("higher_is_better", not is_lower_better(name))
    points = [(point.value, point) for point in series[name] if point.value is not None]
    value, best = (max if higher else min)(points, key=lambda pair: pair[0])
    return {"name": name.removeprefix(EVALUATION), "value": value, "step": best.step, "epoch": best.epoch}


def _peak_memory(series: dict[str, list[Point]]) -> dict[str, Any] | None:
    peaks = {name: max(_values(points), default=None) for name, points in series.items() if name.startswith(MEMORY)}
    known = {name: peak for name, peak in peaks.items() if peak is not None}
    if not known:
        return None
    name = max(known, key=lambda name: known[name])
    return {"name": name.removeprefix(MEMORY), "bytes": known[name]}


def _told(result: dict[str, Any], name: str, otherwise: float | None) -> float | None:
    told = as_number(result.get(name))
    return otherwise if told is None else told


def _values(points: list[Point]) -> list[float]:
    return [point.value for point in points if point.value is not None]


def _times(series: dict[str, list[Point]], events: list[dict[str, Any]]) -> Iterator[float]:
    """The first and last moments of every curve, and those of all events."""
    for points in series.values():
        yield from (point.time for point in (points[0], points[-1]) if point.time)
    yield from (time for event in events if (time := as_number(event.get("time"))))
