"""Settings and numbers of two runs as texts: the same in a terminal and on a page."""

import json
from typing import Any

from brim.observe.comparison import Number
from brim.record.words import show_seconds

GIB = 2**30


def show_setting(value: Any) -> str:
    """
    >>> show_setting(None), show_setting("cosine"), show_setting([1, True])
    ('', 'cosine', '[1, true]')
    """
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)


def show_number(name: str, number: float | None) -> str:
    """
    >>> show_number("peak memory", 3 * 2**30), show_number("steps", 12000), show_number("loss", 0.123456789)
    ('3.00 GiB', '12,000', '0.12346')
    """
    if number is None:
        return "-"
    if name == "peak memory":
        return f"{number / GIB:,.2f} GiB"
    if name == "data wait":
        return f"{100 * number:.1f} %"
    if name == "seconds":
        return show_seconds(number)
    return f"{number:,.0f}" if name in ("steps", "epochs", "samples/s") else f"{number:.5g}"


def show_ratio(row: Number) -> str:
    """
    >>> show_ratio(Number("steps", 2.0, 3.0)), show_ratio(Number("steps", None, 3.0))
    ('1.5', '')
    """
    return "" if row.ratio is None else f"{row.ratio:.3g}"
