"""A run that fails before its first step leaves no folder: its error says all that would be in it."""

from contextlib import suppress
from pathlib import Path

from brim.record import RunFolder
from brim.record.report import REPORT
from brim.record.run_folder import ABOUT, CONFIG, EVENTS, MACHINE, METRICS, MODEL, RUNS

LOG = "log.txt"
WRITTEN_AT_START = {ABOUT, CONFIG, EVENTS, LOG, MACHINE, METRICS, MODEL, REPORT}
BOARD = "events.out.tfevents."  # TensorBoard's


def remove_failed_start(folder: RunFolder) -> bool:
    """Remove the folder, unless it holds a checkpoint, a number or a file of anybody else's; True where it is gone.

    >>> remove_failed_start(RunFolder(Path("nowhere")))
    False
    """
    path = folder.location
    if not folder.is_new or not _is_bare(path):
        return False
    with suppress(OSError):
        for file in path.iterdir():
            if file.name != folder.checkpoints.name:
                file.unlink()
        (path / folder.checkpoints.name).rmdir()
        path.rmdir()
        if folder.path.parent == RUNS:
            with suppress(OSError):  # other runs are in it
                path.parent.rmdir()
    return not path.exists()


def _is_bare(path: Path) -> bool:
    try:
        names = {file.name for file in path.iterdir() if not file.name.startswith(BOARD)}
        has_numbers = (path / METRICS).stat().st_size > 0
        return names <= {*WRITTEN_AT_START, "checkpoints"} and not has_numbers and not any(
            (path / "checkpoints").iterdir()
        )  # fmt: skip
    except OSError:
        return False
