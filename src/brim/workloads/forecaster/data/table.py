"""Tables of numbers, texts and dates by column: from files, DataFrames, arrays and dictionaries of them.

pandas is imported for Parquet files alone: whoever hands over a DataFrame has imported it.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brim.data.columns.frames import is_pandas, refuse_other_frames
from brim.errors import DataError, a_type
from brim.workloads.forecaster.data.dates import as_dates, moved_to_utc, without_zone

Column = np.ndarray[Any, Any]
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "-", "?"))
DELIMITERS = (",", ";", "\t", "|")
UNNAMED = "column0"
INDEX = ""  # no name of a column, which is never empty
TIME_NAMES = ("date", "time", "datetime", "timestamp", "ds", "day", "week", "month", "quarter", "year", "period")


@dataclass(frozen=True)
class Table:
    """Columns of equal length by name: float64 for numbers (NaN where missing), datetime64[us] for dates, else texts.

    ``times`` is a DataFrame's index of dates; ``source`` is what messages call it. ``in_utc``: dates of another time
    zone were brought to UTC.
    """

    columns: dict[str, Column]
    source: str
    times: Column | None = None
    in_utc: bool = False

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def column(self, name: str, what: str) -> Column:
        """A column by its name; ``what`` it was named for goes into the error."""
        if name not in self.columns:
            raise DataError(f"{self.source} has no column {name!r} ({what}); it has {', '.join(self.columns)}")
        return self.columns[name]

    def is_number(self, name: str) -> bool:
        return bool(self.columns[name].dtype.kind == "f")

    def odd_row(self, name: str) -> int | None:
        """Where the first text stands in a column that is made of numbers but for less than half of it."""
        if self.columns[name].dtype.kind != "O":
            return None
        cells = [str(cell).strip() for cell in self.columns[name]]
        odd = [row for row, cell in enumerate(cells) if cell.lower() not in MISSING and _number(cell) is None]
        numbers = sum(_number(cell) is not None for cell in cells)
        return odd[0] if odd and numbers > len(odd) else None


def read_table(data: Any) -> Table:
    """The table that ``data`` is, or that the file which it names holds."""
    if isinstance(data, Table):
        return data
    if isinstance(data, str | Path):
        return _read_file(Path(data))
    refuse_other_frames(data)
    if is_pandas(data):
        return _of_pandas(data, f"the {type(data).__name__}")
    if isinstance(data, Mapping):
        return _of_columns({str(name): column for name, column in data.items()}, "the dictionary")
    return _of_array(data)


def _read_file(path: Path) -> Table:
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a CSV or Parquet file in it")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(path)
    if path.suffix.lower() not in (".csv", ".tsv", ".txt", ".data"):
        raise DataError(f"{path} is neither a CSV nor a Parquet file by its name; rename it, or hand over a DataFrame")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}; name a CSV or Parquet file with the series") from error
    except UnicodeError as error:
        raise DataError(f"{path} is not UTF-8 text; save it as CSV in UTF-8") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return _of_csv(text, str(path))


def _read_parquet(path: Path) -> Table:
    if not path.is_file():
        raise DataError(f"there is no file {path}; name a CSV or Parquet file with the series")
    try:
        import pandas  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError(f"{path}: reading Parquet takes pandas and pyarrow; pip install 'brim[parquet]'") from error
    try:
        return _of_pandas(pandas.read_parquet(path), str(path))
    except ImportError as error:
        raise DataError(f"{path}: reading Parquet takes pyarrow beside pandas; pip install 'brim[parquet]'") from error
    except DataError:
        raise
    except Exception as error:  # of pyarrow, on anybody's bytes
        raise DataError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from error


def _of_csv(text: str, source: str) -> Table:
    lines = text.splitlines()
    first = next((line for line in lines if line.strip()), "")
    delimiter = max(DELIMITERS, key=first.count)
    try:
        rows = [row for row in csv.reader(lines, delimiter=delimiter) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise DataError(f"{source} cannot be read as CSV: {error}") from error
    if not rows:
        raise DataError(f"{source} is empty")
    names = _header(rows)
    body = rows if names is None else rows[1:]
    names = [str(place) for place in range(len(rows[0]))] if names is None else names
    if not body:
        raise DataError(f"{source} has a header and no rows")
    odd = next((at for at, row in enumerate(body) if len(row) != len(names)), None)
    if odd is not None:
        raise DataError(
            f"{source}: row {odd + 1} has {len(body[odd])} cells where there are {len(names)} columns; make them equal"
        )
    cells = dict(zip(names, map(list, zip(*body, strict=True)), strict=True))
    if len(cells) > 1 and cells.get(UNNAMED) == [str(row) for row in range(len(body))]:
        del cells[UNNAMED]  # the numbers of the rows, which pandas writes in front of them
    columns = {name: _of_cells(column, delimiter == ";") for name, column in cells.items()}
    return replace(_of_columns(columns, source), in_utc=_in_utc(cells, columns))


def _in_utc(given: Mapping[str, Any], columns: Mapping[str, Column]) -> bool:
    return any(column.dtype.kind == "M" and moved_to_utc(given[name], column) for name, column in columns.items())


def _header(rows: Sequence[Sequence[str]]) -> list[str] | None:
    """The names of the columns; None where the first row is data."""
    names = [cell.strip() for cell in rows[0]]
    has_numbers = any(_number(name) is not None for name in names if name)
    if has_numbers and not _are_numbered(names, rows) and not _stands_over_others(rows):
        return None
    names = [name or f"column{place}" for place, name in enumerate(names)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"the column {twice!r} is there twice; give each a name of its own")
    return names


def _are_numbered(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether this is how pandas names the columns of an array, 0, 1, 2 with or without rows' numbers before them."""
    numbered = list(names[1:] if not names[0] else names)
    is_counted = numbered == [str(place) for place in range(len(numbered))]
    return is_counted and (not names[0] or (len(names) > 1 and any("." in cell for row in rows[1:] for cell in row)))


def _stands_over_others(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has a text over a column of numbers or of dates."""
    for first, *below in zip(*rows, strict=False):
        is_text = first.strip().lower() not in MISSING and _of_cells([first], has_comma=False).dtype.kind == "O"
        if below and is_text and _of_cells(list(below), has_comma=False).dtype.kind != "O":
            return True
    return False


def _number(cell: str, has_comma: bool = False) -> float | None:
    try:
        return float(cell.replace(",", ".") if has_comma else cell)
    except ValueError:
        return None


def _of_cells(cells: list[str], has_comma: bool) -> Column:
    """Numbers where all are, else dates where all are, else texts. ``has_comma``: 3,5 may be three and a half."""
    plain = [cell.strip() for cell in cells]
    numbers = [np.nan if cell.lower() in MISSING else _number(cell, has_comma) for cell in plain]
    if None not in numbers:
        return np.array(numbers, dtype=np.float64)
    dates = as_dates(plain)
    return np.array(plain, dtype=object) if dates is None else dates


def _of_pandas(data: Any, source: str) -> Table:
    frame = data.to_frame(str(data.name or "value")) if data.ndim == 1 else data
    times = None
    if frame.index.nlevels > 1:
        frame = frame.reset_index()
    elif frame.index.dtype.kind == "M" or hasattr(frame.index, "to_timestamp"):
        times = _pandas_dates(frame.index)
    elif str(frame.index.name).lower() in TIME_NAMES:
        frame = frame.reset_index()
    elif frame.index.dtype.kind not in "iufb":
        times = as_dates([str(label) for label in frame.index])  # dates that were read as texts
    columns: dict[str, Column] = {}
    given = {} if times is None else {INDEX: frame.index}
    for place, name in enumerate(map(str, frame.columns)):
        if name in columns:
            raise DataError(f"{source} has the column {name!r} twice; give each a name of its own")
        given[name] = frame.iloc[:, place]
        columns[name] = _pandas_column(given[name])
    if not columns or not len(frame):
        raise DataError(f"{source} is empty: its shape is {tuple(frame.shape)}")
    in_utc = _in_utc(given, columns if times is None else {INDEX: times, **columns})
    return Table(columns, source, times, in_utc)


def _pandas_dates(index: Any) -> Column:
    """Of an index or the ``.dt`` of a column, without a time zone."""
    plain = index.to_timestamp() if hasattr(index, "to_timestamp") else index
    if getattr(plain, "tz", None) is None:
        return np.asarray(plain.to_numpy(), dtype="datetime64[us]")
    both = (plain.tz_localize(None), plain.tz_convert("UTC").tz_localize(None))
    return without_zone(*(np.asarray(one.to_numpy(), dtype="datetime64[us]") for one in both))


def _pandas_column(column: Any) -> Column:
    kind = getattr(column.dtype, "kind", "O")
    if kind == "M" or hasattr(column.dtype, "freq"):  # dates, or periods
        import pandas

        return _pandas_dates(pandas.Index(column))
    if kind in "iufb":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return _of_objects(list(column))


def _of_objects(values: list[Any]) -> Column:
    """Decimals, dates of Python's, texts, or None among them."""
    return _of_cells(["" if _is_missing(value) else str(value) for value in values], has_comma=False)


def _is_missing(value: Any) -> bool:
    """None, a number that is none, or what pandas has for both, which says of nothing whether it is equal to it."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def _of_columns(given: Mapping[str, Any], source: str) -> Table:
    columns = {name: _of_values(column, name, source) for name, column in given.items()}
    if not columns or not all(map(len, columns.values())):
        raise DataError(f"{source} is empty")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise DataError(
            f"the columns of {source} have different lengths ({min(lengths)} to {max(lengths)}); hand over a list of "
            "arrays for series of different lengths"
        )
    return Table(columns, source)


def _of_values(values: Any, name: str, source: str) -> Column:
    if is_pandas(values):
        return _pandas_column(values)
    array = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"the column {name!r} of {source} has {array.ndim} dimensions; a column has one")
    if array.dtype.kind == "M":
        return array.astype("datetime64[us]")
    return array.astype(np.float64) if array.dtype.kind in "iufb" else _of_objects(array.tolist())


def _of_array(data: Any) -> Table:
    try:
        array = data.detach().cpu().numpy() if isinstance(data, torch.Tensor) else np.asarray(data, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{a_type(data)} is no series; hand over a file's name, a DataFrame, an array of shape (steps,) "
            "or (steps, channels), or a list of such for series of different lengths"
        ) from error
    if array.ndim not in (1, 2) or not array.size:
        raise DataError(f"an array of shape {array.shape} is no series; its shape is (steps,) or (steps, channels)")
    wide = array.astype(np.float64).reshape(len(array), -1)
    return Table({str(place): wide[:, place] for place in range(wide.shape[1])}, "the array")
