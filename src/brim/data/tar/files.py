"""The files of a set of shards: found by folder, pattern or list, and read by position."""

import glob
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from brim.data.tar.index import INDEX
from brim.errors import DataError

MOST_OPEN = 128  # per process and data set; an epoch's order needs some 16 at a time, and systems allow 1,024 or less
PACKING = ".packing"
BRACES = re.compile(r"\{([^{}]*)\}")
RANGE = re.compile(r"(\d+)\.\.(\d+)")


def find_files(source: str | Path | Iterable[str | Path]) -> list[Path]:
    """The files that ``source`` names: a folder of .tar files, a pattern with braces or wildcards, or a list."""
    if not isinstance(source, str | Path):
        found = [Path(path) for part in source for path in find_files(part)]
        if not found:
            raise DataError("the list of shards is empty; name at least one .tar file")
        return found
    if not str(source):
        raise DataError("the pattern of shards is empty; name a folder, a .tar file or a pattern such as 'train-*.tar'")
    if "://" in str(source) or str(source).startswith("pipe:"):
        raise DataError(
            f"{source} is not a file; brim reads shards from disks that are mounted here, so fetch it first"
        )
    path = Path(source).expanduser()
    if path.is_dir():
        return _in_folder(path)
    return [path] if path.exists() else [found for part in expand_braces(str(path)) for found in _matching(part)]


def _in_folder(folder: Path) -> list[Path]:
    if (folder / PACKING).exists() and not (folder / INDEX).exists():
        raise DataError(f"packing into {folder} was not finished; pack again with force=True (--force)")
    found = sorted(path for path in folder.glob("*.tar") if not path.name.startswith("."))
    if not found:
        raise DataError(f"{folder} holds no .tar file; name the folder that shards were packed into")
    return found


def _matching(pattern: str) -> list[Path]:
    found = sorted(glob.glob(pattern))  # noqa: PTH207 (Path.glob cannot start at a pattern)
    if not found:
        raise DataError(f"no shard is found at {pattern}; check the path")
    return [Path(name) for name in found]


def expand_braces(pattern: str) -> Iterator[str]:
    """The names that a pattern with braces stands for, as shells and webdataset write it.

    >>> list(expand_braces("{train,test}-{08..10}.tar"))[:4]
    ['train-08.tar', 'train-09.tar', 'train-10.tar', 'test-08.tar']
    """
    pieces = BRACES.split(pattern)  # text, inside of braces, text, ...
    choices = [_choices(piece) if number % 2 else [piece] for number, piece in enumerate(pieces)]
    return ("".join(parts) for parts in itertools.product(*choices))


def _choices(inside: str) -> list[str]:
    numbers = RANGE.fullmatch(inside)
    if numbers is None:
        return inside.split(",")
    first, last = numbers.groups()
    width = max(len(first), len(last)) if first.startswith("0") or last.startswith("0") else 0
    if not 0 <= int(last) - int(first) < 1_000_000:
        raise DataError(f"{{{inside}}} in the pattern of shards counts backwards or too far; write {{000000..000009}}")
    return [str(number).zfill(width) for number in range(int(first), int(last) + 1)]


class OpenFiles:
    """Files that stay open between reads, opened when they are first read in this process."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self._process, self._open = os.getpid(), dict[int, _Descriptor]()

    def __getstate__(self) -> list[Path]:
        return self.paths

    def __setstate__(self, paths: list[Path]) -> None:
        self.__init__(paths)  # type: ignore[misc]

    def read(self, file: int, offset: int, size: int) -> bytearray:
        """``size`` bytes at ``offset``; fewer where the file ends before."""
        content = bytearray(size)
        descriptor = self._descriptor(file)
        done = os.preadv(descriptor.number, [content], offset)
        while 0 < done < size and (more := os.preadv(descriptor.number, [memoryview(content)[done:]], offset + done)):
            done += more
        return content if done == size else content[:done]

    def _descriptor(self, file: int) -> "_Descriptor":
        if os.getpid() != self._process:  # a fork: each process opens its own
            self._process, self._open = os.getpid(), {}
        found = self._open.get(file)
        if found is None:
            if len(self._open) >= MOST_OPEN:
                self._open.pop(next(iter(self._open)), None)
            found = self._open[file] = _Descriptor(self.paths[file])
        return found


class _Descriptor:
    """Closed when the last thread that reads from it lets it go, so dropping one is safe at any time."""

    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self.number)
