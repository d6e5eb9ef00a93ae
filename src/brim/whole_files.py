"""Files that are there whole or not at all: written aside, then given their name."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A file beside ``path`` to write, which takes its name at the end; where something goes wrong, it is gone."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")  # ranks may write the same file at once
    try:
        yield aside
        aside.replace(path)
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """A file or a folder to the disk, so that a name never stands for what only memory has."""
    is_folder = path.is_dir()
    try:
        handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError:
        if not is_folder:  # folders cannot be opened, or flushed, everywhere
            raise


@contextmanager
def folder_made(folder: Path) -> Iterator[None]:
    """``folder`` is there meanwhile; afterwards, what was made for it is gone again if it is empty."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for path in made:
            with suppress(OSError):  # rmdir refuses a folder that holds something
                path.rmdir()
