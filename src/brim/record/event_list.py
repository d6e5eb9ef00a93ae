"""The events of a run, of which a long run has very many: those that a page shows."""

from typing import Any

FIRST, LAST = 200, 800  # of a longer list, the beginning and the end are kept
BETWEEN = 500  # and so many in between that are not said over and over
ROUTINE = ("epoch", "evaluation", "checkpoint", "best", "data")

Event = dict[str, Any]


def shortened(events: list[Event]) -> tuple[list[Event], int]:
    """The events to keep, in their order, and how many were left out.

    >>> kept, left_out = shortened([{"kind": "epoch"}] * 900 + [{"kind": "memory"}] + [{"kind": "epoch"}] * 900)
    >>> len(kept), left_out, [place for place, event in enumerate(kept) if event["kind"] == "memory"]
    (1001, 800, [200])
    """
    if len(events) <= FIRST + LAST:
        return events, 0
    between = [event for event in events[FIRST:-LAST] if event.get("kind", "note") not in (*ROUTINE, "note")]
    kept = [*events[:FIRST], *between[:BETWEEN], *events[-LAST:]]
    return kept, len(events) - len(kept)
