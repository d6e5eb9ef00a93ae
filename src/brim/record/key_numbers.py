"""The few numbers of a run that one wants to know first."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from brim.record.curves.curve import Curve
from brim.record.series import as_number

LOWER = {
    "loss", "mae", "mse", "rmse", "mape", "smape", "error", "errors", "perplexity", "ppl", "quantile", "pinball", "nll",
    "kl", "wer", "cer", "fid", "brier", "hinge", "entropy", "divergence",
}  # fmt: skip
HIGHER = {
    "accuracy", "acc", "f1", "fbeta", "precision", "recall", "auc", "auroc", "auprc", "ap", "map", "r2", "iou", "miou",
    "dice", "jaccard", "bleu", "rouge", "ndcg", "mrr", "hit", "hr", "psnr", "ssim", "pearson", "spearman", "mcc",
    "kappa", "specificity", "sensitivity", "correlation",
}  # fmt: skip
EVALUATION = "eval/"
MEMORY = "memory_"


def key_numbers(series: Mapping[str, Curve], events: list[dict[str, Any]], result: dict[str, Any]) -> dict[str, Any]:
    """Steps, epochs, seconds, best evaluation, speed and peak memory; None where the run does not say.

    >>> from brim.record.series import series_of
    >>> lines = [{"step": 5, "time": 20.0, "loss": 0.1}, {"step": 9, "time": 23.5, "loss": 0.1}]
    >>> key_numbers(series_of(lines), [], {})["seconds"]
    3.5
    """
    lasts = [curve.last for curve in series.values()]
    times = list(_times(series, events))
    return {
        "steps": _number_or(result, "steps", max((last.step for last in lasts), default=None)),
        "epochs": _number_or(result, "epochs", max((last.epoch for last in lasts), default=None)),
        "seconds": _number_or(result, "seconds", as_number(max(times) - min(times)) if times else None),
        "best": best_evaluation(series, result),
        "samples_per_second": typical(series.get("samples_per_second")),
        "step_ms": typical(series.get("step_ms")),
        "peak_memory": _peak_memory(series),
    }


def started_at(series: Mapping[str, Curve], events: list[dict[str, Any]]) -> float:
    """When the run first wrote anything, in unix seconds; 0 if it never did."""
    return min(_times(series, events), default=0.0)


def ended_at(series: Mapping[str, Curve], events: list[dict[str, Any]]) -> float:
    """When it last did; 0 if it never did."""
    return max(_times(series, events), default=0.0)


def is_higher_better(metric: str) -> bool | None:
    """Whether a metric is better when it is higher, by the words of its name; None where they do not tell.

    >>> is_higher_better("clean/top5_accuracy"), is_higher_better("val_loss"), is_higher_better("beauty")
    (True, False, None)
    """
    words = set(re.split(r"[^a-z0-9]+", metric.rsplit("/", 1)[-1].lower()))
    is_lower, is_higher = bool(words & LOWER), bool(words & HIGHER)
    return None if is_lower == is_higher else is_higher


def typical(curve: Curve | None) -> float | None:
    """The median over steps: a point stands for the steps since the one before it."""
    return None if curve is None or curve.spread is None else curve.spread.median


def best_evaluation(series: Mapping[str, Curve], result: dict[str, Any]) -> dict[str, Any] | None:
    """The best evaluation by the metric that the run watched: as the result says, else ndcg, else the first one.

    A metric of which nothing tells is taken to be better when it is higher.
    """
    names = [name for name, curve in series.items() if name.startswith(EVALUATION) and curve.values]
    if not names:
        return None
    told = f"{EVALUATION}{result.get('monitor')}"
    by_ndcg = next((name for name in names if name.startswith(f"{EVALUATION}ndcg")), names[0])
    name = told if told in names else by_ndcg
    higher = result.get("higher_is_better", is_higher_better(name) is not False)
    points = [(point.value, point) for point in series[name].points if point.value is not None]
    value, best = (max if higher else min)(points, key=lambda pair: pair[0])
    return {"name": name.removeprefix(EVALUATION), "value": value, "step": best.step, "epoch": best.epoch}


def watched_metric(trainer: Any) -> dict[str, Any]:
    """What a run that has no result yet was told to monitor by its settings, as a result says it.

    >>> watched_metric({"monitor": "eval/accuracy", "mode": None}), watched_metric({"monitor": None})
    ({'monitor': 'accuracy', 'higher_is_better': True}, {})
    """
    if not isinstance(trainer, dict) or not isinstance(monitor := trainer.get("monitor"), str):
        return {}
    name = monitor.removeprefix(EVALUATION)
    higher = is_higher_better(name) if trainer.get("mode") is None else trainer["mode"] == "max"
    return {"monitor": name} if higher is None else {"monitor": name, "higher_is_better": higher}


def _peak_memory(series: Mapping[str, Curve]) -> dict[str, Any] | None:
    peaks = {name: max(curve.values, default=None) for name, curve in series.items() if name.startswith(MEMORY)}
    known = {name: peak for name, peak in peaks.items() if peak is not None}
    if not known:
        return None
    name = max(known, key=lambda name: known[name])
    return {"name": name.removeprefix(MEMORY), "bytes": known[name]}


def _number_or(result: dict[str, Any], name: str, otherwise: float | None) -> float | None:
    told = as_number(result.get(name))
    return otherwise if told is None else told


def _times(series: Mapping[str, Curve], events: list[dict[str, Any]]) -> Iterator[float]:
    """The first and last moments of every curve, and those of all events."""
    for curve in series.values():
        yield from (point.time for point in (curve.first, curve.last) if point.time)
    yield from (time for event in events if (time := as_number(event.get("time"))))
