"""Numbers as a page takes them: short, and never one that JSON cannot say."""

from brim.record.series import as_number


def short(value: float | None) -> float | None:
    """Six digits: more than a chart shows, and a third of the page's size.

    >>> short(0.123456789), short(float("inf"))
    (0.123457, None)
    """
    return None if value is None else as_number(float(f"{value:.6g}"))


def since(start: float, time: float, digits: int = 2) -> float | None:
    """Seconds of the run; None where the clock was so wrong that they are no number."""
    return as_number(round(max(0.0, time - start), digits))
