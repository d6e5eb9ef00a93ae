"""What a list of runs needs of metrics.jsonl, of a million lines perhaps: evaluations, the first and the last line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brim.observe.bounded_files import first_object, last_object, lines_of
from brim.record.curves.curve import Curve
from brim.record.json_object import json_object
from brim.record.series import as_number, series_of

EVALUATED = b'"eval/'
STEP = re.compile(rb'"step": ?(\d{1,18})[,}]')


@dataclass(frozen=True)
class MetricsScan:
    """The curves of the evaluations, and the first and the last line that could be read."""

    evaluations: dict[str, Curve]
    first: dict[str, Any]
    last: dict[str, Any]


def scan_metrics(path: Path) -> MetricsScan:
    """Read every line, and take apart only those that count: a tenth of the time that reading all of it takes."""
    return MetricsScan(series_of(_telling_lines(path)), first_object(path), last_object(path))


def _telling_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Evaluations, and from which step to which a run went back to a checkpoint: what it evaluated there is void."""
    newest = 0
    for line in lines_of(path):
        if EVALUATED not in line and (found := STEP.search(line)) is not None:
            step = int(found[1])
            if step < newest:
                yield from ({"step": newest}, {"step": step})
            newest = step
            continue
        told = json_object(line) or {}
        at = as_number(told.get("step"))
        if at is not None:
            yield from ({"step": newest}, told)
            newest = int(at)
