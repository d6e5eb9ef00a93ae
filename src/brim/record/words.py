"""Numbers and texts of a run, as lines for people show them."""

from collections.abc import Mapping

from brim.errors import some_of

MOST_METRICS = 6  # in one line


def show_metrics(metrics: Mapping[str, float], is_best: bool = False) -> str:
    """Metrics in one line.

    >>> show_metrics({"loss": 0.25, "accuracy": 0.9125}, is_best=True)
    'loss 0.2500, accuracy 0.9125 (best so far)'
    """
    shown = some_of((f"{name} {value:.4f}" for name, value in metrics.items()), MOST_METRICS)
    return shown + (" (best so far)" if is_best else "")


def show_seconds(seconds: float) -> str:
    """A duration, as short as it can be said.

    >>> show_seconds(0.04), show_seconds(75), show_seconds(7300)
    ('0.04 s', '1 min 15 s', '2 h 01 min')
    """
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def printable(text: str) -> str:
    """A text from anywhere as one line that only shows itself: what moves the cursor or sets colours is written out.

    >>> printable("run\\x1b[2J\\n\\u202eabc"), printable("Läufe 1")
    ('run\\\\x1b[2J\\\\n\\\\u202eabc', 'Läufe 1')
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "backslashreplace").decode()
        for letter in text
    )
