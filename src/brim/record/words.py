"""Numbers and texts of a run, as lines for people show them."""

from collections.abc import Mapping

from brim.errors import some_of

MOST_METRICS = 20  # in one line
BEST = " (best so far)"


def metrics_line(head: str, metrics: Mapping[str, float], tail: str = "", columns: int | None = None) -> str:
    """A line with all metrics; in a terminal of so many ``columns``, with those that fit into it, one at least.

    >>> metrics_line("eval ", {"loss": 0.25, "accuracy": 0.9125}, " (best so far)")
    'eval loss 0.2500, accuracy 0.9125 (best so far)'
    >>> metrics_line("eval ", {"loss": 0.25, "accuracy": 0.9125}, " (best so far)", columns=40)
    'eval loss 0.2500 and 1 more (best so far)'
    """
    shown = [f"{name} {show_number(value)}" for name, value in metrics.items()]
    most = min(len(shown), MOST_METRICS)
    lines = [f"{head}{some_of(shown, count)}{tail}" for count in range(most, 0, -1)] or [f"{head}{tail}"]
    return next((line for line in lines if columns is None or len(line) <= columns), lines[-1])


def show_number(value: float) -> str:
    """A loss or a metric, with four digits that count.

    >>> show_number(0.25), show_number(1.2e-6), show_number(123456.7), show_number(float("nan"))
    ('0.2500', '1.2e-06', '1.235e+05', 'nan')
    """
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.4g}"


def show_seconds(seconds: float) -> str:
    """A duration, as short as it can be said.

    >>> show_seconds(0.04), show_seconds(75), show_seconds(7300)
    ('0.04 s', '1 min 15 s', '2 h 01 min')
    """
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
