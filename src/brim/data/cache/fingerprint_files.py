"""Files in a fingerprint: by size and time of modification."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISDIR

MOST_FILES = 1_000_000
LONGEST_PATH = 4096


class TooManyFiles(Exception):
    """A text leads to more files than can be looked at."""


class FileFacts:
    """Sizes and times of files that texts name; those below ``leave_out`` do not count."""

    def __init__(self, leave_out: Path | None) -> None:
        self._leave_out = None if leave_out is None else leave_out.resolve()
        self._files = 0

    def of(self, text: str, folders: bool) -> Iterator[str]:
        """Of the file of that name, if there is one; of all files in the folder, where ``folders`` are looked into."""
        if not text or len(text) > LONGEST_PATH or "\0" in text or "\n" in text:
            return
        try:
            found = os.stat(text)  # noqa: PTH116 (a million names: Path costs more than the call)
        except (OSError, ValueError):
            return
        if not S_ISDIR(found.st_mode):
            self._count(text)
            yield f"file of {found.st_size} bytes at {found.st_mtime_ns}"
        elif folders:
            yield from self._in_folder(text)

    def _in_folder(self, folder: str, above: str = "") -> Iterator[str]:
        """Files only: making the cache's own folder in there must not count."""
        if self._leave_out is not None and Path(folder).resolve() == self._leave_out:
            return
        with contextlib.suppress(OSError), os.scandir(folder) as listing:
            for item in sorted(listing, key=lambda item: item.name):
                self._count(folder)
                with contextlib.suppress(OSError):
                    facts = item.stat()
                    if item.is_dir(follow_symlinks=False):
                        yield from self._in_folder(item.path, f"{above}{item.name}/")
                    elif not S_ISDIR(facts.st_mode):
                        yield f"file {above}{item.name} of {facts.st_size} bytes at {facts.st_mtime_ns}"

    def _count(self, place: str) -> None:
        self._files += 1
        if self._files > MOST_FILES:
            raise TooManyFiles(f" that leads to more than {MOST_FILES:,} files, {place!r:.80}")
