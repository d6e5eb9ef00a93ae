"""The run folder while a run is in it: owned by it, told how the run ended, and left with a page, or not at all."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from brim.engine.distributed.ranks import Ranks
from brim.engine.run_folder.result import Result
from brim.engine.run_folder.run_files import note_end, own_folder, shared_folder, show_run
from brim.record import Journal, RunFolder, RunLock
from brim.record.failed_start import remove_failed_start


@dataclass
class OpenedRun:
    """``own`` is where this rank writes what it says. What came of the run is noted here as it becomes known."""

    folder: RunFolder
    own: RunFolder
    lock: RunLock | None  # the first rank's
    result: Result | None = None
    has_begun: bool = False  # a step was made: the folder holds something of worth
    stopped_by: str = ""  # a signal


@contextmanager
def opened_run(
    ranks: Ranks, journal: Journal, resume: str | Path | None, run_dir: str | Path | None, name: str, is_dry: bool
) -> Iterator[OpenedRun]:
    """The folder of a run, new or continued; one that failed before its first step leaves none."""
    folder, lock = shared_folder(ranks, resume, run_dir, name, journal)
    opened = OpenedRun(folder, folder, lock)
    try:
        opened.own = own_folder(ranks, folder, journal)
        yield opened
    except BaseException as error:
        note_end(folder, journal, error, opened.stopped_by)
        raise
    finally:
        if ranks.is_first:
            show_run(folder, journal, None if is_dry else opened.result)
        journal.close()
        if lock is not None:
            lock.release()
        has_begun = opened.result is not None or opened.has_begun or not ranks.is_alone
        if not has_begun and isinstance(sys.exception(), Exception):
            remove_failed_start(folder)
