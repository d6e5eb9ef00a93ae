"""The run folders below a folder."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from brim.errors import RunFolderError
from brim.observe.bounded_files import is_there
from brim.record.run_folder import METRICS, RUNS

DEEPEST = 4  # runs/EXPERIMENT/SEED/RUN; whoever names a whole disk does not wait for all of it


def find_runs(folder: Path, blocked: Callable[[Path], None] = lambda folder: None) -> Iterator[Path]:
    """The runs at and below ``folder``; ``blocked`` hears of folders that may not be looked into.

    Folders that begin with a dot and links are passed over: what they lead to is found where it is.
    """
    yield from _below(folder, DEEPEST, blocked)


def open_folder(folder: Path | None) -> Path:
    """The folder to look into, ``runs`` where none is named; RunFolderError where it is none."""
    chosen = RUNS if folder is None else folder
    try:
        is_there = chosen.is_dir()
    except (OSError, ValueError):  # a name that no file system takes
        is_there = False
    if not is_there and folder is not None:
        raise RunFolderError(f"there is no folder {chosen}; name one with runs in it, or a run")
    return chosen


def find_run(name: Path) -> Path:
    """A run by its path, or by its name under ``runs``."""
    for folder in (name, RUNS / name):
        if is_there(folder / METRICS):
            return folder
    raise RunFolderError(f"{name} is not a run folder, and {RUNS} has none of that name; brim runs lists them")


def _below(folder: Path, levels: int, blocked: Callable[[Path], None]) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:  # gone meanwhile
        return
    except OSError:
        blocked(folder)
        return
    if any(entry.name == METRICS for entry in entries):
        yield folder  # and what is below belongs to it: its ranks
        return
    if levels == 0:
        return
    for entry in entries:
        if not entry.name.startswith(".") and _is_folder(entry):
            yield from _below(Path(entry.path), levels - 1, blocked)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # a file system that has to look, and may not
        return False
