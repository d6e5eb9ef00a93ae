"""What a run says: lines for people (terminal and log.txt) and events for programs (events.jsonl)."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from brim.errors import RunFolderError
from brim.record.notebook import CellView
from brim.record.run_folder import EVENTS, RunFolder


class Journal:
    """Says each line once on the terminal, and keeps it in the run folder once there is one.

    Lines go to stderr, so that what a command prints on stdout is its result alone.
    """

    def __init__(self, quiet: bool = False, speaker: str = "") -> None:
        self.speaker = speaker  # one of several, who is heard only when something is wrong
        self.console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True, markup=False, emoji=False)
        # In a notebook every print would be an output of its own.
        self.cell = CellView() if self.console.is_jupyter and not quiet else None
        self._log: TextIO | None = None
        self._events: TextIO | None = None
        self._unwritten: list[tuple[str, dict[str, Any]]] = []

    def attach(self, folder: RunFolder) -> None:
        """Write to ``folder`` from now on, beginning with what was said before it existed."""
        self.close()
        try:
            self._log = (folder.path / "log.txt").open("a", encoding="utf-8")
            self._events = (folder.path / EVENTS).open("a", encoding="utf-8")
        except OSError as error:
            self.close()
            raise RunFolderError(f"cannot write to the run folder {folder.path}: {error.strerror}") from error
        unwritten, self._unwritten = self._unwritten, []
        for line, event in unwritten:
            self._keep(line, event)

    def say(self, line: str | Callable[[int | None], str], kind: str = "note", **facts: Any) -> None:
        """One line for people, one event with ``facts`` for programs.

        ``line`` may be a function of the columns that it must fit into: those of the terminal, or None.
        """
        if not self.speaker:
            columns = self.console.width if self.console.is_terminal else None
            self._print(line if isinstance(line, str) else line(columns))
        self.note(line if isinstance(line, str) else line(None), kind, **facts)

    def warn(self, line: str, kind: str = "warning", **facts: Any) -> None:
        """The same, for what the user should look at."""
        who = f"{self.speaker}: " if self.speaker else ""
        if self.cell is not None:
            self.cell.say(f"{who}{line}", is_warning=True)
        else:
            self._print(Text.assemble(("warning:", "yellow"), " ", who, line))
        self._keep(f"warning: {line}", {"time": time.time(), "kind": kind, "line": line, **facts})

    def warn_for_all(self, line: str | None, kind: str = "warning") -> None:
        """What all ranks find alike: the first one says it. None is nothing."""
        if line is not None and not self.speaker:
            self.warn(line, kind)

    def hint(self, line: str) -> None:
        """For a notebook alone, where the next cell can go on after whatever has ended this one."""
        if self.cell is not None and not self.speaker:
            self.cell.say(line)

    def note(self, line: str, kind: str = "note", **facts: Any) -> None:
        """For the run folder alone: what the user is told by other means."""
        self._keep(line, {"time": time.time(), "kind": kind, "line": line, **facts})

    def close(self) -> None:
        for file in (self._log, self._events):
            if file is not None:
                with suppress(OSError):
                    file.close()
        self._log = self._events = None

    def _print(self, line: str | Text) -> None:
        if self.cell is not None:
            self.cell.say(str(line))
            return
        with suppress(OSError):  # often a file, on a disk that may be full; that ends no run
            self.console.print(line)

    def _keep(self, line: str, event: dict[str, Any]) -> None:
        if self._log is None or self._events is None:
            self._unwritten.append((line, event))
            return
        at = datetime.fromtimestamp(event["time"])
        with suppress(OSError):  # a full disk: the terminal has the line
            self._log.write(f"{at:%Y-%m-%d %H:%M:%S} {line}\n")
            self._log.flush()
            self._events.write(json.dumps(event, default=str) + "\n")
            self._events.flush()
