"""Dates as people write them, as numpy's datetime64 in microseconds."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from brim.errors import DataError

Dates = np.ndarray[Any, Any]
# Those of a kind parse the same texts: where two of them do, nobody can tell which is meant.
FORMATS = ("%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%b %Y",
           "%B %Y", "%d %b %Y", "%b %d, %Y", "%d-%b-%Y", "%d-%b-%y")  # fmt: skip
CLOCKS = ("", " %H:%M", " %H:%M:%S")


def as_dates(texts: Sequence[str]) -> Dates | None:
    """The dates that these texts are, without their time zones; None where one of them is no date.

    >>> as_dates(["2024-01", "2024-02"]).astype("datetime64[D]").tolist()
    [datetime.date(2024, 1, 1), datetime.date(2024, 2, 1)]
    """
    if not texts or not all(texts):
        return None
    iso = _iso(texts)
    if iso is not None:
        return iso
    found = [(form, dates) for form in FORMATS for clock in CLOCKS if (dates := _by(form + clock, texts)) is not None]
    if not found:
        return None
    if any(not np.array_equal(found[0][1], dates) for _, dates in found[1:]):
        forms = " or ".join(form for form, _ in found)
        raise DataError(f"dates such as {texts[0]!r} can be read as {forms}; write them as 2024-01-31")
    return found[0][1]


def _iso(texts: Sequence[str]) -> Dates | None:
    if not all(text[:4].isdigit() and text[4:5] == "-" for text in texts):
        return None
    try:
        return np.array(texts, dtype="datetime64[us]") if not any(map(_names_zone, texts)) else _with_zones(texts)
    except ValueError:
        return None


def _names_zone(text: str) -> bool:
    return text.endswith("Z") or "+" in text or text.count("-") == 3  # a week of pandas has more: 2024-01-01/2024-01-07


def _with_zones(texts: Sequence[str]) -> Dates:
    dates = [datetime.fromisoformat(text) for text in texts]
    local = [date.replace(tzinfo=None) for date in dates]
    plain = [date if date.tzinfo is None else date.astimezone(UTC).replace(tzinfo=None) for date in dates]
    return without_zone(np.array(local, dtype="datetime64[us]"), np.array(plain, dtype="datetime64[us]"))


def without_zone(local: Dates, utc: Dates) -> Dates:
    """The local dates where the clock shows the same at all of them, else the moments in UTC.

    A day, or a month, is one of the place: in UTC the days of a summer begin at another hour than those of a winter,
    and the first of a month can be the last of the one before. Hours are in UTC, where each is there once.
    """
    clocks = local - local.astype("datetime64[D]")
    return local if len(np.unique(clocks[~np.isnat(clocks)])) == 1 else utc


def moved_to_utc(given: Iterable[Any], dates: Dates) -> bool:
    """Whether what was given with a time zone, as texts or by pandas, shows another clock than ``dates``.

    >>> moved_to_utc(["2024-01-31T13:00+01:00"], np.array(["2024-01-31T12:00"], dtype="datetime64[us]"))
    True
    """
    texts = (str(one).strip() for one in given)
    first = next(texts, "")
    pairs = zip((first, *texts), dates, strict=True) if _names_zone(first) else ()
    return any(text[:16].replace("T", " ") != str(date)[:16].replace("T", " ") for text, date in pairs)


def _by(form: str, texts: Sequence[str]) -> Dates | None:
    try:
        return np.array([datetime.strptime(text, form) for text in texts], dtype="datetime64[us]")
    except ValueError:
        return None


def shown_time(time: Any) -> str:
    """A time as short as it can be written: ``2024-01-31``, or ``2024-01-31 13:00:00``.

    >>> shown_time(np.datetime64("2024-01-31T00:00:00.000000"))
    '2024-01-31'
    """
    return str(time).removesuffix(".000000").removesuffix("T00:00:00").replace("T", " ")
