"""What happened to a run, on a line of time: each event that is more than routine, in the lane of its kind."""

from typing import Any

from brim.record.event_list import Event
from brim.record.report.shown_numbers import since
from brim.record.run_record import Checkpoint
from brim.record.series import as_number

OUT_OF_MEMORY, ALERTS, BROKEN_OFF = "out of memory", "alerts and warnings", "broken off"
STARTS, EVALUATIONS, CHECKPOINTS = "starts and ends", "epochs, evaluations", "checkpoints"
LANES = (OUT_OF_MEMORY, ALERTS, BROKEN_OFF, STARTS, EVALUATIONS, CHECKPOINTS)
BY_KIND = {
    "alert": ALERTS, "warning": ALERTS, "numbers": ALERTS, "loggers": ALERTS, "oom": OUT_OF_MEMORY,
    "interrupted": BROKEN_OFF, "failed": BROKEN_OFF,
    "resume": STARTS, "restart": STARTS, "device": STARTS, "strategy": STARTS, "stopped": STARTS, "end": STARTS,
    "epoch": EVALUATIONS, "evaluation": EVALUATIONS, "checkpoint": CHECKPOINTS,
}  # fmt: skip
SHORTAGE = "out of memory"  # with which the line of a step that is tried again begins
MOST_EVALUATIONS = 400  # marks that lie upon each other say nothing


def lane_of(event: Event) -> str | None:
    """Where an event belongs; None for one that is no event of the run's course.

    >>> lane_of({"kind": "memory", "line": "out of memory in the backward"}), lane_of({"kind": "data"})
    ('out of memory', None)
    """
    kind, line = event.get("kind"), str(event.get("line", ""))
    if kind == "memory":
        return OUT_OF_MEMORY if line.startswith(SHORTAGE) else None
    return BY_KIND.get(kind) if isinstance(kind, str) else None


def timeline(events: list[Event], checkpoints: list[Checkpoint], start: float, end: float) -> list[dict[str, Any]]:
    """The marks of every lane that has any: seconds of the run, and what is said there."""
    marks: dict[str, list[tuple[float, str]]] = {lane: [] for lane in LANES}
    for event in events:
        lane, time = lane_of(event), as_number(event.get("time"))
        if lane is not None and time is not None:
            marks[lane].append((time, str(event.get("line", ""))))
    # Files that were copied elsewhere have the time of the copy.
    marks[CHECKPOINTS] += [
        (one.time, f"checkpoint of step {one.step:,}") for one in checkpoints if start <= one.time <= end
    ]
    marks[EVALUATIONS] = marks[EVALUATIONS][-MOST_EVALUATIONS:]
    return [
        {"lane": lane, "marks": [{"seconds": since(start, at), "line": line} for at, line in sorted(found)]}
        for lane, found in marks.items()
        if found
    ]
