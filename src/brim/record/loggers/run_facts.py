"""What a tracker is told of a run: its settings and what it is about, as the run folder has them; and how it ended."""

import json
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from brim.errors import Preempted
from brim.record.json_object import json_object
from brim.record.run_folder import ABOUT, CONFIG, write_atomically

FINISHED, KILLED, FAILED = "FINISHED", "KILLED", "FAILED"


def run_facts(folder: Path) -> dict[str, Any]:
    """The configuration by its own names, and ``about``: model, optimizer, data, commit, command.

    >>> run_facts(Path("nowhere"))
    {}
    """
    import yaml  # not needed by whoever only looks at runs

    facts: dict[str, Any] = {}
    try:
        config = yaml.safe_load(_text(folder / CONFIG))
    except yaml.YAMLError:  # of the user's own making
        config = None
    if isinstance(config, Mapping):
        facts.update({str(name): value for name, value in config.items()})
    about = json_object(_text(folder / ABOUT))
    return {**facts, "about": about} if about else facts


def remembered_run(folder: Path, name: str) -> dict[str, Any]:
    """Which run of a tracker's belongs to this run folder; empty where there is none yet."""
    return json_object(_text(folder / name)) or {}


def remember_run(folder: Path, name: str, identity: Mapping[str, Any]) -> None:
    write_atomically(folder / name, json.dumps(identity, indent=2) + "\n")


class Ending:
    """How a run ends: by the error that is on its way where its loggers are closed.

    An error that was being handled before the run began (``fit`` in an ``except`` block) is not the run's.
    """

    def __init__(self) -> None:
        self._before = sys.exception()

    def status(self) -> str:
        error = sys.exception()
        if error is None or error is self._before:
            return FINISHED
        return KILLED if isinstance(error, KeyboardInterrupt | Preempted) else FAILED


@contextmanager
def generators_kept() -> Iterator[None]:
    """Libraries draw where they are first imported and where they make names, and this is in the middle of a run."""
    import numpy as np

    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
