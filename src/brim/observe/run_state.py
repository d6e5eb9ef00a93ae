"""How a run stands: it goes on, has ended well, with an error or by a signal, or nothing says."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brim.observe.bounded_files import read_text
from brim.record.run_lock import LOCK, STALE_S, Owner, owner_of

RUNNING, FINISHED, FAILED, INTERRUPTED, UNFINISHED = "running", "finished", "failed", "interrupted", "unfinished"


@dataclass(frozen=True)
class RunState:
    """One word, more about it, and the process that trains where there is one."""

    word: str
    detail: str = ""
    owner: Owner | None = None


def state_of(folder: Path, result: dict[str, Any], last_event: dict[str, Any]) -> RunState:
    """By the lock of the folder, then by what the run wrote when it ended. ``result``: of result.json."""
    owner = owner_of(read_text(folder / LOCK))
    if owner is not None and is_running(owner, folder):
        return RunState(RUNNING, str(owner), owner)
    if "ended" in result:
        ended = str(result["ended"])
        return RunState(FINISHED, "" if ended == "done" else ended)
    kind, line = last_event.get("kind"), str(last_event.get("line", ""))
    if kind == "failed":
        return RunState(FAILED, line.removeprefix("ended with an error: "))
    if kind == "interrupted":
        return RunState(INTERRUPTED, f"by {last_event.get('by') or 'a signal'}")
    if owner is not None:  # who ended without giving the folder back
        return RunState(INTERRUPTED, f"{owner} is gone: killed, or its machine went down")
    return RunState(UNFINISHED, "nothing in the folder says how it ended")


def is_running(owner: Owner, folder: Path) -> bool:
    """Whether the owner trains in the folder; one on another machine by the sign of life that it gives."""
    try:
        known = owner.is_alive(folder)
        # Nothing is written into a folder that is only looked at, so by this machine's clock.
        return time.time() - (folder / LOCK).stat().st_mtime <= STALE_S if known is None else known
    except OSError:  # the folder or the lock went away meanwhile
        return False
