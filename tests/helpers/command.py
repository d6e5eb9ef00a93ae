"""``brim`` as its user types it, in this process: starting another one and importing torch takes seconds."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from brim.cli import main as cli


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
            patch.setattr(sys, "argv", ["brim", *arguments])
            self.capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                cli.main()
        return Done(ended.value.code or 0, *self.capsys.readouterr())
