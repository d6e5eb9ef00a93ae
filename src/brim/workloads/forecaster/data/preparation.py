"""How values become what the network sees: learned from the training steps, and kept for forecasts of newer data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brim.workloads.forecaster.data.calendar_features import calendar_features
from brim.workloads.forecaster.data.scaling import Scaling, mean_and_spread, where_finite
from brim.workloads.forecaster.data.series import Columns, Series, carry_forward
from brim.workloads.forecaster.data.split import Borders
from brim.workloads.forecaster.data.time_step import Times, TimeStep

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Preparation:
    """Names of the columns and of the calendar's features, and the statistics of values and covariates."""

    lookback: int
    horizon: int
    columns: Columns
    calendar: tuple[str, ...]
    scaling: Scaling
    known: Array  # mean and spread of the known columns, (2, known)
    static: Array  # of the static numbers, (2, static)
    step: TimeStep | None = None  # None of a run that is older than this

    @classmethod
    def learned(
        cls, several: Sequence[Series], borders: Sequence[Borders], columns: Columns, calendar: tuple[str, ...],
        lookback: int, horizon: int, scale: bool, step: TimeStep | None = None,
    ) -> "Preparation":  # fmt: skip
        """From the training steps of the series alone."""
        training = [one.validation for one in borders]
        known = np.concatenate([one.known[:steps] for one, steps in zip(several, training, strict=True)])
        static = np.stack([one.static for one in several])
        scaling = Scaling.of(several, training, scale)
        return cls(lookback, horizon, columns, calendar, scaling, _statistics(known), _statistics(static), step)

    def inputs(self, series: Series) -> tuple[Array, Array]:
        """The values of a series scaled, without gaps; and as targets, with them.

        Zero before the first observation is the mean of the training steps: nothing comes from later.
        """
        scaled = self.scaling.apply(series.values, series.name)
        return np.nan_to_num(carry_forward(scaled)), scaled

    def covariates(self, times: Times, known: Array) -> Array:
        """The covariates of these steps: the calendar's, and the known columns scaled, 0 (their mean) where missing."""
        scaled = np.nan_to_num((known - self.known[0]) / self.known[1])
        return np.concatenate([calendar_features(times, self.calendar), scaled], axis=1)

    def described(self, series: Series) -> Array:
        """The static numbers of a series, the mean of all where one is missing."""
        return np.asarray(np.nan_to_num((series.static - self.static[0]) / self.static[1]))

    def as_json(self) -> dict[str, Any]:
        return {
            "lookback": self.lookback, "horizon": self.horizon, "columns": self.columns.as_json(),
            "calendar": list(self.calendar), "scaling": self.scaling.as_json(), "known": self.known.tolist(),
            "static": self.static.tolist(), "step": vars(self.step) if self.step else None,
        }  # fmt: skip

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> "Preparation":
        known, static = (np.asarray(told[name], dtype=np.float64).reshape(2, -1) for name in ("known", "static"))
        columns, scaling = Columns.from_json(told["columns"]), Scaling.from_json(told["scaling"])
        step = told.get("step")
        return cls(
            int(told["lookback"]),
            int(told["horizon"]),
            columns,
            tuple(map(str, told["calendar"])),
            scaling,
            known,
            static,
            None if step is None else TimeStep(str(step["kind"]), int(step["size"]), int(step["day"])),
        )


def _statistics(values: Array) -> Array:
    """Mean and spread of columns over what is there; 0 and 1 where nothing is, a spread of 1 for a constant."""
    width = values.shape[1]
    return where_finite(mean_and_spread(values), np.stack([np.zeros(width), np.ones(width)]))
