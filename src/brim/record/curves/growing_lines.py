"""A jsonl file that is being written: what was appended since the last look."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brim.record.json_object import json_object

AT_ONCE = 1 << 20  # bytes that are read at a time: the file may be large


class GrowingLines:
    """Reads a file from where it stopped; a file that became shorter is another one, and is read from its beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0

    def has_restarted(self) -> bool:
        """Whether the file is shorter than what was read of it."""
        try:
            return self.path.stat().st_size < self._position
        except OSError:
            return self._position > 0

    def new(self) -> Iterator[dict[str, Any]]:
        """The objects of new lines. A line that is none is passed over; one that is half written, until it is whole."""
        if self.has_restarted():
            self._position = 0
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                rest = b""
                while more := file.read(AT_ONCE):
                    *lines, rest = (rest + more).split(b"\n")
                    self._position += sum(len(line) + 1 for line in lines)
                    yield from filter(None, map(json_object, lines))
        except OSError:
            return
        if (last := json_object(rest)) is not None:  # whole, though its end of line is still to come
            self._position += len(rest)
            yield last
