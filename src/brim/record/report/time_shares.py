"""Where the time of a step goes, over the steps: as the run recorded it, or the data wait alone."""

from typing import Any

from brim.record.curves.curve import Curve
from brim.record.report.shown_numbers import short
from brim.record.run_record import WAIT_SHARE, RunRecord
from brim.record.series import SHARE

# In the order in which they lie on each other: what is wasted first, so that it is read against the base line.
ORDER = ("data_wait", "copy", "sync", "launch", "rest", "compute")
STRETCHES = 200  # of which a chart shows the means; more could not be told apart


def time_shares(run: RunRecord, accumulation: int) -> dict[str, Any] | None:
    """Shares by name at the same steps. ``is_measured``: all of them were recorded; else the wait was worked out."""
    recorded = {name.removeprefix(SHARE): curve for name, curve in run.series.items() if name.startswith(SHARE)}
    if recorded:
        names = [*(name for name in ORDER if name in recorded), *(name for name in recorded if name not in ORDER)]
        return {"is_measured": True, **_stacked({name: recorded[name] for name in names})}
    waited = run.series.get(WAIT_SHARE)
    if waited is None or not waited.values:
        return None
    means = [(step, min(1.0, value * accumulation)) for step, value in waited.means(STRETCHES)]
    return {
        "is_measured": False,
        "step": [round(step) for step, _ in means],
        "shares": {"data_wait": [short(value) for _, value in means], "rest": [short(1 - value) for _, value in means]},
    }


def _stacked(curves: dict[str, Curve]) -> dict[str, Any]:
    """The means of equal stretches. All shares are in every line, so their stretches are the same ones."""
    means = {name: curve.means(STRETCHES) for name, curve in curves.items()}
    grid = max(means.values(), key=len)
    return {
        "step": [round(step) for step, _ in grid],
        "shares": {name: [short(_at(step, found)) for step, _ in grid] for name, found in means.items()},
    }


def _at(step: float, means: list[tuple[float, float]]) -> float | None:
    """The mean nearest to a step: exactly there, unless lines lack some of the shares."""
    return min(means, key=lambda one: abs(one[0] - step))[1] if means else None
