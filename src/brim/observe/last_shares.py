"""Where the time of a run's last steps went, by the end of its metrics.jsonl."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from brim.record.series import SHARE, as_number

LINES = 10  # of which the mean is taken
LEAST_SHOWN = 0.01


def last_shares(lines: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """The mean of the last lines that have shares; None where none does.

    >>> last_shares([{"step": 5, "share/data_wait": 0.2, "share/rest": 0.8}, {"step": 6, "eval/loss": 1.0}])
    {'data_wait': 0.2, 'rest': 0.8}
    """
    told = [found for line in lines if (found := _shares(line))][-LINES:]
    if not told:
        return None
    return {name: round(fmean(each.get(name, 0.0) for each in told), 4) for name in told[-1]}


def show_shares(shares: Mapping[str, float]) -> str:
    """Those that are anything, the largest first.

    >>> show_shares({"data_wait": 0.2, "copy": 0.001, "compute": 0.799})
    'compute 80 %, data wait 20 %'
    """
    shown = sorted((one for one in shares.items() if one[1] >= LEAST_SHOWN), key=lambda one: -one[1])
    return ", ".join(f"{name.replace('_', ' ')} {100 * share:.0f} %" for name, share in shown)


def _shares(line: Mapping[str, Any]) -> dict[str, float]:
    named = {name.removeprefix(SHARE): as_number(value) for name, value in line.items() if name.startswith(SHARE)}
    return {name: value for name, value in named.items() if value is not None}
