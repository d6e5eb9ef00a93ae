"""How long steps took: a histogram, and the steps that took much longer than the others."""

from collections.abc import Sequence
from typing import Any

from brim.record.curves.curve import Curve
from brim.record.curves.distribution import Distribution
from brim.record.report.shown_numbers import short

STEP_MS = "step_ms"
BARS = 36
NARROWEST = 0.01  # a bar, as a share of the median: what is counted is known to 0.2 %
SLOW = 2.0  # an outlier takes more than so many medians
OUTLIERS = 8  # that are named


def step_times(curves: Sequence[Curve | None]) -> list[dict[str, Any] | None]:
    """The histograms of one run or of several, all over the same range; None for a run that has no step times."""
    spreads = [
        None if curve is None or curve.spread is None or not curve.spread.steps else curve.spread for curve in curves
    ]
    known = [spread for spread in spreads if spread is not None]
    edges = shared_edges(known) if known else []
    return [None if spread is None else _times(spread, edges) for spread in spreads]


def shared_edges(spreads: Sequence[Distribution]) -> list[float]:
    """Equal bars from the shortest step to where hardly any are: a few slow ones would press all others into one."""
    medians = [_known(spread.median) for spread in spreads]
    low = min(0.9 * min(medians), *(_known(spread.least) for spread in spreads))
    high = max(1.1 * max(medians), *(1.1 * _known(spread.quantile(0.99)) for spread in spreads))
    middle = min(medians)
    bars = max(1, min(BARS, int((high - low) / (NARROWEST * middle))))
    return [low + (high - low) * index / bars for index in range(bars + 1)]


def _times(spread: Distribution, edges: list[float]) -> dict[str, Any]:
    median = _known(spread.median)
    counts = spread.histogram(edges)
    slow = [one for one in spread.largest if one.value > SLOW * median][:OUTLIERS]
    return {
        "median": short(median),
        "most": short(spread.largest[0].value),
        "p99": short(spread.quantile(0.99)),
        "low": short(edges[0]),
        "high": short(edges[-1]),
        "counts": counts,
        "beyond": spread.above(edges[-1]),
        "steps": spread.steps,
        "window": round(spread.steps / spread.values),  # steps of which a value is the mean
        "slow_limit": short(SLOW * median),
        "slow_steps": spread.above(SLOW * median),
        "outliers": [{"first": one.step - one.steps + 1, "last": one.step, "ms": short(one.value)} for one in slow],
    }


def _known(value: float | None) -> float:
    assert value is not None  # a distribution that counted steps has them
    return value
