"""Values in units of their spread, by the statistics of the training steps alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from brim.workloads.forecaster.data.series import Series

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Scaling:
    """Mean and spread of each series' channels, (series, channels) both, by the names of the series."""

    names: tuple[str, ...]
    mean: Array
    spread: Array
    whole: Array  # mean and spread over all series, (2, channels), for those that training did not see

    @classmethod
    def of(cls, several: Sequence[Series], training: Sequence[int], is_scaled: bool = True) -> "Scaling":
        """From the first ``training`` steps of each series.

        A series without any is taken by those of all others; a constant has a spread of 1, so that it is 0.
        """
        channels = several[0].values.shape[1]
        unscaled = np.stack([np.zeros(channels), np.ones(channels)])
        known = [one.values[:steps] for one, steps in zip(several, training, strict=True)]
        whole = where_finite(mean_and_spread(np.concatenate(known)), unscaled) if is_scaled else unscaled
        own = [where_finite(mean_and_spread(values), whole) if is_scaled else unscaled for values in known]
        mean, spread = np.stack([one[0] for one in own]), np.stack([one[1] for one in own])
        return cls(tuple(one.name for one in several), mean, spread, whole)

    def of_series(self, name: str) -> tuple[Array, Array]:
        """Mean and spread of the channels of a series; those of all where training did not see it."""
        if name not in self._places:
            return self.whole[0], self.whole[1]
        return self.mean[self._places[name]], self.spread[self._places[name]]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def apply(self, values: Array, name: str) -> Array:
        """Values (steps, channels) of a series, scaled."""
        mean, spread = self.of_series(name)
        return (values - mean) / spread

    def undo(self, values: Array, name: str) -> Array:
        """Scaled values (steps, channels, ...) of a series, in its own units."""
        mean, spread = self.of_series(name)
        more = (1,) * (values.ndim - 2)
        return values * spread.reshape(-1, *more) + mean.reshape(-1, *more)

    def as_json(self) -> dict[str, Any]:
        return {"names": list(self.names), "mean": self.mean.tolist(), "spread": self.spread.tolist(),
                "whole": self.whole.tolist()}  # fmt: skip

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> "Scaling":
        arrays = {name: np.asarray(told[name], dtype=np.float64) for name in ("mean", "spread", "whole")}
        return cls(tuple(told["names"]), **arrays)


def where_finite(found: Array, otherwise: Array) -> Array:
    """What was found, and something else where nothing was."""
    return np.where(np.isfinite(found), found, otherwise)


def mean_and_spread(values: Array) -> Array:
    """Mean and spread of each channel over what was observed; NaN where nothing was, 1 for the spread of a constant."""
    seen = np.isfinite(values)
    count = seen.sum(0)
    filled = np.where(seen, values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(0) / count
        spread = np.sqrt(np.where(seen, np.square(filled - mean), 0.0).sum(0) / count)
    # A constant's spread is what rounding leaves of it.
    is_constant = spread <= 1e-9 * np.maximum(np.abs(mean), 1e-300)
    return np.stack([mean, np.where(is_constant, 1.0, spread)])
