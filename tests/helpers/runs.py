"""Run folders as brim leaves them, written by hand: training one for each test would take a second."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brim.record.run_lock import LOCK, Owner

STARTED = 1_700_000_000.0


def write_run(
    folder: Path,
    lines: Sequence[dict[str, Any]] = (),
    events: Sequence[dict[str, Any]] = (),
    config: str = "trainer: {lr: 0.1, epochs: 3}\n",
    **objects: Any,
) -> Path:
    """A run with these lines of metrics.jsonl and events.jsonl, and JSON files by name: ``result={...}``."""
    (folder / "checkpoints").mkdir(parents=True)
    metrics = [{"time": STARTED + place, "epoch": 1, **line} for place, line in enumerate(lines)]
    told = [{"time": STARTED + place, "kind": "note", "line": "", **event} for place, event in enumerate(events)]
    for name, rows in (("metrics.jsonl", metrics), ("events.jsonl", told)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "config.yaml").write_text(config)
    for name, value in objects.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def lock_run(run: Path, age: float = 0.0, **changes: Any) -> Owner:
    """Write a lock that names this process, with some of its facts changed."""
    owner = Owner(**{**vars(Owner.of_this_process(run)), **changes})
    path = run / LOCK
    path.write_text(json.dumps(vars(owner)))
    if age:
        os.utime(path, (time.time() - age,) * 2)
    return owner
