"""Large text tables of whole numbers, read at the speed of the disk; a bad line is named all the same."""

import warnings
from pathlib import Path

import numpy as np

from brim.errors import DataError

MOST_DIGITS = 18  # more do not fit into 64 bits


def read_number_table(path: Path, separator: bytes, columns: tuple[str, ...], header: bool = False) -> list[np.ndarray]:
    """The columns of a table of non-negative whole numbers, one row a line.

    The whole file is converted at once, by numpy. Only if that does not give exactly as many numbers as the lines must
    hold is it read again, line by line, to say which line is wrong and why.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    skipped = 0
    if header and content[:1].isalpha():
        content, skipped = content.partition(b"\n")[2], 1
    if content and not content.endswith(b"\n"):
        content += b"\n"
    if not content:
        raise DataError(f"{path} is empty")
    numbers = _convert(content, separator, len(columns))
    if numbers is None:
        raise DataError(f"{path}, {_first_fault(content, separator, columns, skipped)}")
    return [np.ascontiguousarray(column) for column in numbers.reshape(-1, len(columns)).T]


def _convert(content: bytes, separator: bytes, columns: int) -> np.ndarray | None:
    """All numbers in order, or None if any line is not ``columns`` numbers with separators between them."""
    characters = np.frombuffer(content, dtype=np.uint8)
    ends = np.flatnonzero(characters == ord("\n"))
    separators = np.flatnonzero(characters == separator[0])
    # Every line must hold its own separators: counting them up to each line's end finds those that do not.
    expected = np.arange(1, len(ends) + 1) * (columns - 1) * len(separator)
    if not np.array_equal(np.searchsorted(separators, ends), expected):
        return None
    # Apart from digits and separators a line holds nothing, but for the carriage return of Windows.
    odd = (characters < ord("0")) | (characters > ord("9"))
    if not np.isin(characters[odd], list(separator + b"\r\n")).all():
        return None
    if content.count(b"\r") != content.count(b"\r\n"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            numbers = np.fromstring(content.replace(separator, b" "), dtype=np.int64, sep=" ")
        except ValueError:
            return None
    return numbers if len(numbers) == len(ends) * columns and len(numbers) and numbers.max() < 10**MOST_DIGITS else None


def _first_fault(content: bytes, separator: bytes, columns: tuple[str, ...], skipped: int) -> str:
    for number, line in enumerate(content.split(b"\n")[:-1], 1 + skipped):
        fields = line.rstrip(b"\r").split(separator)
        if len(fields) != len(columns):
            shown = separator.decode().replace("\t", "tab")
            return f"line {number}: {len(fields)} fields separated by {shown!r} instead of {len(columns)}"
        for name, field in zip(columns, fields, strict=True):
            if not field.isdigit() or len(field) > MOST_DIGITS:
                return f"line {number}: {field[:40].decode('latin-1')!r} is not a {name}"
    return "it cannot be read as a table of whole numbers"
