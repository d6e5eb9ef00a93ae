"""``brim`` as its user types it, in this process: starting another one and importing torch takes seconds."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from brim.cli import main as cli
from helpers.optional import skip_where_told


@dataclass(frozen=True)
class Done:
    """How a command ended, named as `subprocess.CompletedProcess` has it."""

    returncode: int
    stdout: str
    stderr: str


class Command:
    """``command(folder, "train", "a.yaml")``: what it prints and its exit code."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, folder: Path, *arguments: str) -> Done:
        with self.monkeypatch.context() as patch:
            patch.chdir(folder)
            self.capsys.readouterr()
            code = brim(arguments, patch)
        done = Done(code or 0, *self.capsys.readouterr())
        skip_where_told(done.stderr)
        return done


def brim(arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the program where the test stands; gives the exit code."""
    monkeypatch.setattr(sys, "argv", ["brim", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code
