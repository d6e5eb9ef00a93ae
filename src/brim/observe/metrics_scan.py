"""What a list of runs needs of metrics.jsonl, of a million lines perhaps: evaluations, the first and the last line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brim.observe.bounded_files import first_object, last_object, lines_of
from brim.record.json_object import json_object
from brim.record.series import Point, as_number, series_of

EVALUATED = b'"eval/'
STEP = re.compile(rb'"step": ?(\d{1,18})[,}]')


@dataclass(frozen=True)
class MetricsScan:
    """The curves of the evaluations, and the first and the last line that could be read."""

    evaluations: dict[str, list[Point]]
    first: dict[str, Any]
    last: dict[str, Any]


def scan_metrics(path: Path) -> MetricsScan:
    """Read every line, and take apart only those that count: a tenth of the time that reading all of it takes."""
    return MetricsScan(series_of(_telling_lines(path)), first_object(path), last_object(path))


def _telling_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Evaluations, and each step at which the run went back to a checkpoint: what came after that one is void."""
    newest = 0
    for line in lines_of(path):
        is_evaluation = EVALUATED in line
        found = None if is_evaluation else STEP.search(line)
        told: dict[str, Any] = {"step": int(found[1])} if found is not None else _object(line)
        step = as_number(told.get("step"))
        if step is None:
            continue
        if is_evaluation:
            yield told
        elif step < newest:
            yield {"step": step}
        newest = int(step)


def _object(line: bytes) -> dict[str, Any]:
    return json_object(line.decode("utf-8", "replace")) or {}
