"""The series that a forecaster learns from, cut into windows that are views of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from brim.errors import ConfigError, DataError
from brim.sizes import check_whole
from brim.workloads.forecaster.data.calendar_features import chosen_features
from brim.workloads.forecaster.data.preparation import Preparation
from brim.workloads.forecaster.data.series import Columns, series_of, without_empty
from brim.workloads.forecaster.data.split import SPLITS, Split, find_borders
from brim.workloads.forecaster.data.table import Table, read_table

SERIES = "series"


class SeriesDataset:
    """One or many series of any step, split by time, scaled, and cut into windows.

    A window is ``lookback`` steps and the ``horizon`` that follows; windows are views of the series, so that a million
    of them take no more memory than the series does. Statistics of scaling are those of the training steps. In place of
    what is missing inputs have the value before it, never one from the future, and losses and metrics leave it out;
    ``notes`` has a sentence for all that was done.

    Args:
        data: the name of a CSV or Parquet file, a DataFrame, an array (steps,) or (steps, channels), a dict of columns,
            or a list of arrays for series of different lengths.
        lookback: steps that a forecast is made from.
        horizon: steps that are forecast.
        target: the column or columns to forecast; all further columns of numbers, unless given.
        time: the column of dates (or of whole numbers); the index, or a column that holds dates, unless given.
        series: the column that tells series apart, where rows of many stand below each other (long format).
        known: columns whose future is known; rows after the last value give it.
        static: columns that say something of a series as a whole, numbers or categories.
        split: shares of train, validation and test, numbers of steps, or the dates at which validation and test begin;
            None for 0.7, 0.1, 0.2, with at least one horizon to judge by.
        calendar: ``"auto"`` for what the calendar knows of each step (hour, weekday, month), a list of such names, or
            False.
        scale: whether values are scaled by mean and spread of the training steps.
        season: steps of a season, for the naive forecast; None for what the step suggests: 24 hours, 7 days, 12 months.
        stride: steps from one training window to the next.

    Raises:
        DataError: where the data cannot be used, in a sentence that says where and what to do.

    >>> data = SeriesDataset(np.arange(100.0), lookback=14, horizon=7)
    >>> len(data.get_split_data("train")), data.get_split_data("train")[0][0].shape
    (50, torch.Size([14, 1]))
    """

    def __init__(
        self,
        data: Any,
        lookback: int = 96,
        horizon: int = 24,
        *,
        target: str | Sequence[str] | None = None,
        time: str | None = None,
        series: str | None = None,
        known: str | Sequence[str] = (),
        static: str | Sequence[str] = (),
        split: Split = None,
        calendar: str | bool | Sequence[str] = False,
        scale: bool = True,
        season: int | None = None,
        stride: int = 1,
    ) -> None:
        for name, value in (("lookback", lookback), ("horizon", horizon), ("stride", stride)):
            check_whole(name, value)
        if season is not None:
            check_whole("season", season)
        self.lookback, self.horizon, self.stride = lookback, horizon, stride
        if _is_many(data):
            series = SERIES
        table = series_table(data)
        columns = Columns.found(table, _names(target), time, series, _names(known), _names(static))
        found = without_empty(series_of(table, columns))
        self.season = season or found.step.season()
        self.step, self.channels = found.step, columns.target
        self._refuse_short(max(map(len, found.series)))
        self.borders = find_borders(found, split, lookback, horizon)
        self.series, self.notes = found.series, list(found.notes)
        features = chosen_features(calendar, found.step, found.has_dates)
        self.preparation = Preparation.learned(
            found.series, self.borders, columns, features, lookback, horizon, scale, found.step
        )
        self._lay_out()

    def _refuse_short(self, longest: int) -> None:
        least = self.lookback + 3 * self.horizon
        if longest < least:
            room = longest - 3 * self.horizon
            shorter = f"lookback={room}" if room > 0 else "a shorter lookback and horizon"
            raise DataError(
                f"the longest series has {longest:,} steps; lookback={self.lookback} and horizon={self.horizon} need "
                f"{least:,} or more to train, choose and test: take {shorter}"
            )

    def _lay_out(self) -> None:
        """All series below each other, scaled; which starts belong to which split."""
        prepared = [self.preparation.inputs(one) for one in self.series]
        joined = np.concatenate([target for _, target in prepared])
        self.values = _tensor(np.concatenate([filled for filled, _ in prepared]))
        self.targets = _tensor(joined) if np.isnan(joined).any() else self.values
        covariates = self.preparation.covariates
        self.known = _tensor(np.concatenate([covariates(one.times, one.known) for one in self.series]))
        self.static = _tensor(np.stack([self.preparation.described(one) for one in self.series]))
        self.offsets = np.concatenate([[0], np.cumsum([len(one) for one in self.series])])
        self._starts = {name: self._find_starts(name, joined) for name in SPLITS}
        self._tell_short()

    def _find_starts(self, split: str, joined: np.ndarray[Any, Any]) -> Tensor:
        """Where the windows of a split begin, all series counted through."""
        seen = np.concatenate([[0], np.cumsum(np.isfinite(joined).any(1))])
        found = []
        for offset, border in zip(self.offsets[:-1], self.borders, strict=True):
            first, end = {
                "train": (self.lookback, border.validation),
                "validation": (border.validation, border.test),
                "test": (border.test, border.end),
            }[split]
            targets = np.arange(max(first, self.lookback), end - self.horizon + 1) + offset
            has_target = seen[targets + self.horizon] > seen[targets]
            has_past = seen[targets] > seen[targets - self.lookback]
            found.append((targets - self.lookback)[has_target & has_past][:: self.stride if split == "train" else 1])
        return torch.from_numpy(np.concatenate(found))

    def _tell_short(self) -> None:
        for name in ("train", "validation"):
            if not len(self._starts[name]):
                shortest = max(self.lookback + self.horizon if name == "train" else self.horizon, 1)
                raise DataError(
                    f"there is no window to {'train on' if name == 'train' else 'choose the best weights by'}: the "
                    f"{name} part needs {shortest} steps of a series with values; change split, or shorten lookback="
                    f"{self.lookback} and horizon={self.horizon}"
                )
        ends = np.searchsorted(self._starts["train"].numpy(), self.offsets)
        short = [one.name for one, first, last in zip(self.series, ends[:-1], ends[1:], strict=True) if first == last]
        if short:
            self.notes.append(
                f"{len(short)} of {len(self.series)} series have no training window of {self.lookback} + "
                f"{self.horizon} steps ({', '.join(short[:3])}{', ...' if len(short) > 3 else ''})"
            )
        unused = sum(len(one) - border.end for one, border in zip(self.series, self.borders, strict=True))
        if unused:
            self.notes.append(f"{unused:,} steps after the test part are not used by the split")

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self._starts[name]):,} {name}" for name in SPLITS)
        channels = f"{len(self.channels)} channel{'s' if len(self.channels) > 1 else ''}"
        return (
            f"SeriesDataset({len(self.series):,} series, {int(self.offsets[-1]):,} steps ({self.step}), {channels}; "
            f"windows of {self.lookback} + {self.horizon}: {counts})"
        )

    @property
    def known_count(self) -> int:
        """How many covariates are known for the future."""
        return self.known.shape[1]

    @property
    def static_count(self) -> int:
        return self.static.shape[1]

    def windows(self) -> TensorDataset:
        """All windows, those across the borders of series among them: (past, target[, known][, static]), as views."""
        rows = len(self.values) - self.lookback - self.horizon + 1
        columns = [_unfolded(self.values, self.lookback)[:rows], _unfolded(self.targets[self.lookback :], self.horizon)]
        if self.known_count:
            columns.append(_unfolded(self.known, self.lookback + self.horizon))
        if self.static_count:
            columns.append(self.static[torch.from_numpy(self.series_of(torch.arange(rows)))])
        return TensorDataset(*columns)

    def get_split_data(self, split: str) -> Subset[tuple[Tensor, ...]]:
        """The windows of ``"train"``, ``"validation"`` or ``"test"``: the whole horizon of each lies in that part."""
        return Subset(self.windows(), self.starts(split))  # type: ignore[arg-type]

    def starts(self, split: str) -> Tensor:
        """Where the windows of a split begin."""
        if split not in self._starts:
            raise ConfigError(f"there is no split {split!r}; use one of {', '.join(SPLITS)}")
        return self._starts[split]

    def series_of(self, starts: Tensor) -> np.ndarray[Any, Any]:
        """The number of the series that each window begins in."""
        return np.searchsorted(self.offsets, starts.numpy(), side="right") - 1


def series_table(data: Any) -> Table:
    """The table that ``data`` is; a list of arrays as series below each other."""
    return _long_table(data) if _is_many(data) else read_table(data)


def _unfolded(values: Tensor, length: int) -> Tensor:
    """Every run of ``length`` rows, (runs, length, columns), over the same memory."""
    return values.unfold(0, length, 1).transpose(1, 2)


def _tensor(values: np.ndarray[Any, Any]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)  # in memory of torch's own, where writing to it is noticed


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(map(str, given))


def _is_many(data: Any) -> bool:
    """Whether this is a list of series, each with a length of its own."""
    return (
        isinstance(data, list | tuple)
        and bool(data)
        and all(hasattr(one, "__len__") and not isinstance(one, str) for one in data)
    )


def _long_table(several: Sequence[Any]) -> Table:
    """Series below each other, named by their number."""
    tables = [read_table(one) for one in several]
    if any(list(one.columns) != list(tables[0].columns) for one in tables):
        raise DataError("the series in the list differ in their number of channels; they must have the same")
    if len({one.times is None for one in tables}) > 1:
        raise DataError("some series in the list have dates in their index and others have not; give all of them dates")
    columns = {name: np.concatenate([one.columns[name] for one in tables]) for name in tables[0].columns}
    dated = [one.times for one in tables if one.times is not None]
    labels = np.concatenate([np.full(len(one), str(place), dtype=object) for place, one in enumerate(tables)])
    times, in_utc = np.concatenate(dated) if dated else None, any(one.in_utc for one in tables)
    return Table({SERIES: labels, **columns}, "the list", times, in_utc)
