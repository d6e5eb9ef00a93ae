"""Series out of a table: which column is what, one series after the other, on the grid of their step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from brim.errors import ConfigError, DataError
from brim.workloads.forecaster.data.dates import as_dates, shown_time
from brim.workloads.forecaster.data.table import TIME_NAMES, Table
from brim.workloads.forecaster.data.time_step import Times, TimeStep, find_step

Array = np.ndarray[Any, Any]
LARGEST_WHOLE = 2.0**53  # below which every whole number is one of float64
ID_NAMES = ("unique_id", "series_id", "item_id", "id", "series")


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are. ``time`` is None where steps are counted, or where the index has the dates."""

    target: tuple[str, ...]
    time: str | None = None
    series: str | None = None
    known: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    categories: tuple[tuple[str, ...], ...] = ()  # of each static column; none of a column of numbers

    @classmethod
    def found(
        cls, table: Table, target: Sequence[str], time: str | None, series: str | None, known: Sequence[str],
        static: Sequence[str],
    ) -> "Columns":  # fmt: skip
        """Those named, and what can be told of the others: a column of dates, and all further numbers as targets."""
        for name, what in ((time, "time"), (series, "series")):
            if name is not None:
                table.column(name, what)
        for names, what in ((target, "target"), (known, "known"), (static, "static")):
            for name in names:
                table.column(name, what)
        named = [*([time] if time else []), *([series] if series else []), *known, *static]
        twice = next((name for name in [*named, *target] if [*named, *target].count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"the column {twice!r} was named for two things; a column is one of them")
        if time is None and table.times is None:
            time = _time_column(table, [*named, *target])
        taken = {*named, time}
        if not target:
            _refuse_odd_cells(table, [name for name in table.columns if name not in taken])
        targets = tuple(target) or tuple(name for name in table.columns if name not in taken and table.is_number(name))
        categories = tuple(() if table.is_number(name) else _categories(table.columns[name]) for name in static)
        return cls(
            check_numbers(table, targets),
            time,
            series,
            check_numbers(table, tuple(known), "known"),
            tuple(static),
            categories,
        )

    def as_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> "Columns":
        target, known, static = (tuple(map(str, told[name])) for name in ("target", "known", "static"))
        return cls(target, told["time"], told["series"], known, static, tuple(map(tuple, told["categories"])))


def _refuse_odd_cells(table: Table, names: Sequence[str]) -> None:
    """A column of numbers with a text somewhere would be left out unseen, where others are numbers throughout."""
    for name in names:
        row = table.odd_row(name)
        if row is not None:
            raise DataError(
                f"{table.source}: the column {name!r} holds {str(table.columns[name][row])[:40]!r} among numbers (row "
                f"{row + 1}); correct it or leave the cell empty, or name the columns to forecast with target="
            )


def _categories(column: Array) -> tuple[str, ...]:
    return tuple(sorted({str(value) for value in column}))


def _time_column(table: Table, taken: Sequence[str]) -> str | None:
    free = [name for name in table.columns if name not in taken]
    dated = [name for name in free if table.columns[name].dtype.kind == "M"]
    named = [name for name in free if name.lower() in TIME_NAMES]
    if len(dated) > 1 and not set(dated) & set(named):
        raise DataError(
            f"{table.source} has several columns of dates ({', '.join(dated)}); name the time: time={dated[0]}"
        )
    return next((name for name in [*(one for one in named if one in dated), *dated, *named]), None)


def check_numbers(table: Table, names: tuple[str, ...], what: str = "target") -> tuple[str, ...]:
    """The same names; refused where a column is not made of finite numbers."""
    if not names and what == "target":
        texts = [f"{name} ({_first_cell(column)!r})" for name, column in table.columns.items()]
        raise DataError(f"{table.source} has no column of numbers to forecast; it has {', '.join(texts[:8])}")
    for name in names:
        if not table.is_number(name):
            raise DataError(
                f"{table.source}: the {what} column {name!r} is not made of numbers (it holds "
                f"{_first_cell(table.columns[name])!r}); "
                "correct it, or name another one"
            )
        if np.isinf(table.columns[name]).any():
            row = int(np.isinf(table.columns[name]).argmax())
            raise DataError(
                f"{table.source}: the column {name!r} is infinite in row {row + 1}; leave the cell empty instead"
            )
    return names


def _first_cell(column: Array) -> str:
    return next((str(cell)[:40] for cell in column if str(cell)), "")


@dataclass(frozen=True)
class Series:
    """One series on its grid. ``values`` and ``known`` have a row for each step, NaN where nothing was observed."""

    name: str
    times: Times  # datetime64[us], or the numbers of the steps
    values: Array  # (steps, channels)
    known: Array  # (steps, known), of steps without a value as at the step before
    static: Array  # (static,), NaN where a number is missing
    ahead: Array  # known covariates of steps after the last value

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True)
class SeriesSet:
    """All series of a table, their step, and sentences about what was done to bring them there."""

    series: tuple[Series, ...]
    step: TimeStep
    columns: Columns
    notes: tuple[str, ...]

    @property
    def has_dates(self) -> bool:
        return bool(self.series[0].times.dtype.kind == "M")


def series_of(table: Table, columns: Columns, trained: TimeStep | None = None) -> SeriesSet:
    """The series of a table, each in the order of its times, on the grid of ``trained`` where that is given."""
    times, is_dated = _times(table, columns)
    names, members = _members(table, columns)
    ordered, notes = [], []
    for name, rows in zip(names, members, strict=True):
        order = np.argsort(times[rows], kind="stable") if is_dated or columns.time else np.arange(len(rows))
        if (np.diff(order) < 0).any():
            notes.append(f"the rows of {_called(name)} were put into the order of their times")
        ordered.append(rows[order])
        _refuse_twice(times[rows[order]], name, table, columns)
    notes = notes if len(notes) < 3 else [f"the rows of {len(notes)} series were put into the order of their times"]
    step = _step_of([times[rows] for rows in ordered], trained, table)
    if table.in_utc:
        notes.append("times with a time zone are taken in UTC, in which those of a forecast are too")
    if step.kind == "rows":
        notes.append("the times have no common step, so that rows are taken as steps, in their order")
    made = [_one(table, columns, name, rows, times[rows], step) for name, rows in zip(names, ordered, strict=True)]
    notes += _told_gaps(made, ordered, columns, step) + _told_covariates(made, table, columns)
    return SeriesSet(tuple(made), step, columns, tuple(notes))


def _step_of(several: Sequence[Times], trained: TimeStep | None, table: Table) -> TimeStep:
    """The step of these times; the one of training where they lie on its grid, and refused where it is another."""
    if trained is not None and (trained.kind == "rows" or trained.is_of(several)):
        return trained
    found = find_step(several)
    if trained is None or found.kind == "rows" or (found.kind, found.size) == (trained.kind, trained.size):
        return found
    raise DataError(
        f"the run was trained on a row for each {trained}, and {table.source} has one for each {found}; bring it to "
        "the same step, or train on it"
    )


def _times(table: Table, columns: Columns) -> tuple[Times, bool]:
    """The time of each row and whether these are dates; else the number of the row, or what the column says."""
    if columns.time is None:
        if table.times is None:
            return np.arange(len(table)), False
        times = table.times
    else:
        times = table.columns[columns.time]
    if times.dtype.kind == "O":
        dates = as_dates([str(time) for time in times])
        if dates is None:
            shown = next(iter(table.columns[str(columns.time)]))
            raise DataError(
                f"the time column {columns.time!r} does not hold dates ({shown!r}); write them as 2024-01-31"
            )
        times = dates
    if times.dtype.kind == "M":
        if np.isnat(times).any():
            raise DataError(
                f"{table.source}: row {int(np.isnat(times).argmax()) + 1} has no date; drop it, or fill it in"
            )
        return times, True
    if not np.isfinite(times).all() or (times != np.round(times)).any():
        raise DataError(
            f"the time column {columns.time!r} holds neither dates nor whole numbers; write them as 2024-01-31"
        )
    whole = times.astype(np.int64)
    is_year = str(columns.time).lower() == "year" and whole.min() >= 1000 and whole.max() <= 3000
    return ((whole - 1970).astype("datetime64[Y]").astype("datetime64[us]"), True) if is_year else (whole, False)


def _members(table: Table, columns: Columns) -> tuple[list[str], list[Array]]:
    """The names of the series in the order in which they appear, and the rows of each."""
    if columns.series is None:
        return [""], [np.arange(len(table))]
    labels = table.columns[columns.series]
    if labels.dtype.kind == "f" and (np.abs(labels) >= LARGEST_WHOLE).any():
        raise DataError(
            f"{table.source}: numbers in {columns.series!r} have more digits than a number keeps, so series would be "
            "taken for one another; write a letter in front of them"
        )
    texts = [_label(label) for label in labels]
    if any(text in ("", "nan") for text in texts):
        row = next(at for at, text in enumerate(texts) if text in ("", "nan"))
        raise DataError(f"{table.source}: row {row + 1} has no value in {columns.series!r}, so nobody knows its series")
    unique, first, inverse = np.unique(np.array(texts), return_index=True, return_inverse=True)
    by_series = np.argsort(inverse, kind="stable")
    parts = np.split(by_series, np.cumsum(np.bincount(inverse))[:-1])
    order = np.argsort(first)
    return [str(unique[at]) for at in order], [parts[at] for at in order]


def _label(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _refuse_twice(times: Times, name: str, table: Table, columns: Columns) -> None:
    twice = np.flatnonzero(times[1:] == times[:-1])
    if len(twice):
        likely = [one for one in table.columns if one.lower() in ID_NAMES or table.columns[one].dtype.kind == "O"]
        column = next((one for one in likely if one != columns.time), "...")
        raise DataError(
            f"{_called(name)} has {shown_time(times[twice[0]])} twice; "
            + (f"name the column that tells series apart (series={column}), or " if columns.series is None else "")
            + "keep one row for each time"
        )


def _one(table: Table, columns: Columns, name: str, rows: Array, times: Times, step: TimeStep) -> Series:
    positions = step.positions(times)
    if positions is None:  # of another phase than the rest: its rows as they come
        positions = np.arange(len(times))
    length = int(positions[-1]) + 1
    grid = times if length == len(times) else np.concatenate([times[:1], step.after(times[0], length - 1)])
    values = _on_grid(table, columns.target, rows, positions, length)
    known = _on_grid(table, columns.known, rows, positions, length)
    seen = np.isfinite(values).any(1)
    first, end = (int(seen.argmax()), int(np.flatnonzero(seen)[-1]) + 1) if seen.any() else (0, 0)
    known, own = carry_forward(known), slice(first, end)
    return Series(name, grid[own], values[own], known[own], _static(table, columns, name, rows), known[end:])


def _on_grid(table: Table, names: Sequence[str], rows: Array, positions: Array, length: int) -> Array:
    laid = np.full((length, len(names)), np.nan)
    for place, name in enumerate(names):
        laid[positions, place] = table.columns[name][rows]
    return laid


def carry_forward(values: Array) -> Array:
    """The last value that was observed, at each step; NaN before the first. It never looks ahead.

    >>> carry_forward(np.array([[np.nan], [1.0], [np.nan]])).ravel().tolist()
    [nan, 1.0, 1.0]
    """
    seen = np.isfinite(values)
    last = np.maximum.accumulate(np.where(seen, np.arange(len(values))[:, None], 0), axis=0)
    return np.take_along_axis(values, last, axis=0) if len(values) else values


def _static(table: Table, columns: Columns, name: str, rows: Array) -> Array:
    """Numbers as they are; of a category a 1 in its place, which no category has that training did not see."""
    found: list[float] = []
    for column, categories in zip(columns.static, columns.categories, strict=True):
        own = table.columns[column][rows]
        is_number = own.dtype.kind == "f"
        if is_number == bool(categories):
            raise DataError(f"the static column {column!r} is not of the kind that it was in training")
        values = {value for value in own.tolist() if value == value}
        if len(values) > 1:
            raise DataError(
                f"the static column {column!r} changes within {_called(name)}; name it in known= if the future is known"
            )
        value = next(iter(values), np.nan)
        found += [float(value)] if is_number else [float(str(value) == category) for category in categories]
    return np.array(found, dtype=np.float64)


def _told_gaps(made: Sequence[Series], rows: Sequence[Array], columns: Columns, step: TimeStep) -> list[str]:
    """How many values are missing, and how many steps had no row at all."""
    notes = []
    inserted = sum(max(0, len(one) + len(one.ahead) - len(own)) for one, own in zip(made, rows, strict=True))
    if inserted:
        notes.append(f"{inserted:,} step{'s' if inserted > 1 else ''} ({step}) had no row, and count as missing")
    for place, name in enumerate(columns.target):
        missing = sum(int(np.isnan(one.values[:, place]).sum()) for one in made)
        total = sum(map(len, made))
        if missing:
            notes.append(
                f"{name}: {missing:,} of {total:,} values are missing; inputs have the value before instead, and the "
                "loss and the metrics leave them out"
            )
    empty = [one.name for one in made if not len(one)]
    if empty:
        notes.append(f"{len(empty)} series without any value are left out ({', '.join(empty[:3])})")
    return notes if len(notes) <= 12 else [*notes[:12], f"and {len(notes) - 12} more columns with missing values"]


def _told_covariates(made: Sequence[Series], table: Table, columns: Columns) -> list[str]:
    """How many values of the further inputs are missing, and which categories training did not know."""
    notes = []
    for name in columns.known:
        missing = int(np.isnan(table.columns[name]).sum())
        if missing:
            notes.append(f"{name}: {missing:,} of {len(table):,} known values are missing; the value before is taken")
    for name, categories in zip(columns.static, columns.categories, strict=True):
        new = sorted(set(_categories(table.columns[name])) - set(categories)) if categories else []
        if new:
            notes.append(
                f"{name}: {', '.join(new[:3])} did not occur in training, and counts as none of its categories"
            )
    missing = sum(bool(np.isnan(one.static).any()) for one in made)
    if missing:
        notes.append(f"{missing:,} series lack a static number; the mean of all is taken")
    return notes


def without_empty(found: SeriesSet) -> SeriesSet:
    """The same without series that have no value; refused where a column to forecast has none in any of them."""
    kept = tuple(one for one in found.series if len(one))
    if not kept:
        raise DataError(f"no value of {', '.join(found.columns.target)} is there: every cell is empty")
    is_there = np.any([np.isfinite(one.values).any(0) for one in kept], axis=0)
    if not is_there.all():
        empty = found.columns.target[int(is_there.argmin())]
        raise DataError(
            f"the column {empty!r} has no value: every cell is empty; fill it in, or name the others with target="
        )
    return replace(found, series=kept)


def _called(name: str) -> str:
    return f"the series {name!r}" if name else "the series"
