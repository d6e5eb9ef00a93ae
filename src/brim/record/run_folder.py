"""The folder that holds everything a run leaves behind."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from brim.errors import RunFolderError, a_type
from brim.whole_files import written_aside

RUNS = Path("runs")
METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"
CONFIG = "config.yaml"
MODEL = "model.json"
MACHINE = "machine.json"
ABOUT = "about.json"
RESULT = "result.json"
PLAN = "plan.json"
WEIGHTS = (".pt", ".pth", ".safetensors", ".ckpt", ".bin")


def in_home(path: str | Path | None) -> str | Path | None:
    """``~/runs`` as shells understand it; Python would make a folder that is called ``~``.

    >>> in_home("runs/one")
    'runs/one'
    """
    return Path(path).expanduser() if path is not None and str(path).startswith("~/") else path


class RunFolder:
    """``runs/NAME/``: configuration, metrics, events, log and checkpoints of one run.

    ``path`` is what the user is shown, ``location`` the same place even after the script has called ``os.chdir``.
    """

    def __init__(self, path: Path, is_new: bool = False) -> None:
        self.path, self.is_new = path, is_new  # is_new: made by this run, and nothing was there before
        self.location = path.absolute()
        self.checkpoints = path / "checkpoints"

    @classmethod
    def create(cls, path: str | Path | None = None, name: str = "run") -> "RunFolder":
        """Make a new run folder; without ``path``, one named after the time and ``name`` under ``runs/``."""
        folder = Path(path) if path is not None else _unused(RUNS / f"{datetime.now():%Y%m%d-%H%M%S}-{name}")
        try:
            if (folder / METRICS).exists():
                raise FileExistsError
            is_new = not folder.exists()
            (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
            (folder / METRICS).touch(exist_ok=False)  # two that begin at once: one of them makes it
        except FileExistsError as error:
            raise RunFolderError(
                f"{folder} already holds a run; continue it with fit(resume={str(folder)!r}), or on the command line "
                f"with brim train --resume {folder}, or choose another run_dir"
            ) from error
        except (OSError, ValueError) as error:  # ValueError: a name that no file system takes
            raise RunFolderError(
                f"cannot write the run folder {folder}: {_reason(error)}; choose another place with run_dir="
            ) from error
        return cls(folder, is_new)

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """An existing run folder."""
        if not isinstance(path, str | Path):
            meant = "; it is its .run" if hasattr(path, "run") else ""
            raise RunFolderError(f"a run folder is named by a path, and this is {a_type(path)}{meant}")
        folder = Path(in_home(path) or path)
        try:
            is_run = (folder / METRICS).exists()
        except (OSError, ValueError) as error:
            raise RunFolderError(f"cannot look into {folder}: {_reason(error)}") from error
        if not is_run:
            if folder.suffix in WEIGHTS:
                raise RunFolderError(
                    f"{folder} is not a run folder but a file of weights, by its name; give them to the model: "
                    "model.load_state_dict(torch.load(path)), or safetensors.torch.load_model(model, path)"
                )
            run = next((parent for parent in list(folder.parents)[:2] if (parent / METRICS).exists()), None)
            meant = f"it is within one: name {run}" if run is not None else "name a folder that a run made"
            raise RunFolderError(f"{folder} is not a run folder: it has no {METRICS}; {meant}")
        return cls(folder)

    def write(self, name: str, text: str) -> None:
        """Write a file whole or not at all."""
        write_atomically(self.location / name, text)

    def write_json(self, name: str, value: Any) -> None:
        self.write(name, json.dumps(value, indent=2) + "\n")

    def read_json(self, name: str) -> Any:
        """What :meth:`write_json` wrote."""
        return json.loads((self.location / name).read_text(encoding="utf-8"))

    def remove(self, name: str) -> None:
        (self.location / name).unlink(missing_ok=True)


def write_atomically(path: Path, text: str, advice: str = "free some space or choose another run_dir=") -> None:
    """Write aside, then rename: a reader sees the old file or the new one, never half of one.

    ``advice``: what to do where that fails.
    """
    try:
        with written_aside(path) as aside:
            aside.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror}; {advice}") from error


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _unused(path: Path) -> Path:
    """``path``, or with a number behind it if two runs start in one second."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
