"""The process in which a script is watched: ``python -P -m brim.doctor.child ORDER.json``.

The script runs as ``__main__`` with its own arguments. When enough was seen, what was seen is written and the process
ends on the spot: there is no exception that a script could catch, and nothing of its own runs any more (a ``finally``
that saves, a logger's last words).
"""

import contextlib
import ctypes
import faulthandler
import io
import json
import os
import random
import runpy
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from brim.doctor.order import OWN_FAULT, Order, read_order
from brim.replaced import replaced

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux
# Services that write somewhere else than into files.
QUIET = {"WANDB_MODE": "disabled", "COMET_MODE": "DISABLED", "NEPTUNE_MODE": "debug", "CLEARML_OFFLINE_MODE": "1",
         "TRACKIO_MODE": "disabled"}  # fmt: skip


class ReadsInput(BaseException):
    """The script asked for input. Not an Exception, so that it is not taken for an empty answer."""


class ReplacesItself(BaseException):
    """The script began another program in the place of its own. Not an Exception, so that it is not taken for one that
    cannot be begun."""


class NoBytes(io.RawIOBase):
    """The same, as bytes."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise ReadsInput


class NoInput(io.TextIOBase):
    """What the script has for stdin."""

    buffer = NoBytes()

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> str:
        raise ReadsInput

    def readline(self, size: int | None = -1) -> str:  # type: ignore[override]
        raise ReadsInput

    def isatty(self) -> bool:
        return False


def main() -> NoReturn:
    order = read_order(Path(sys.argv[1]).read_text())
    _die_with_parent()
    folder = Path(order.folder)
    os.environ.update(QUIET)
    os.environ["MLFLOW_TRACKING_URI"] = f"file:{folder / 'mlflow'}"
    if order.compile_cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = order.compile_cache
    faulthandler.enable(file=(folder / "crash.txt").open("w"))
    stacks = (folder / "stacks.txt").open("w")
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
    try:
        _watch_script(order, folder)
    except Exception:  # what the script raises does not come here
        traceback.print_exc()
        os._exit(OWN_FAULT)


def _watch_script(order: Order, folder: Path) -> NoReturn:
    # Imported here: torch takes seconds, and the stacks above can tell of a hang in it.
    from brim.doctor.cures.applied import apply_cures
    from brim.doctor.stages import OBSERVE, TRIAL, at_pace
    from brim.doctor.watching.feed.brim_feeds import watch_brims_feeds
    from brim.doctor.watching.lines.source_lines import own_files
    from brim.doctor.watching.script_watch import ScriptWatch

    script = str(Path(order.script).absolute())  # the script may go to another folder
    progress = (folder / "progress.jsonl").open("w", buffering=1)
    write = open  # the script's own is another one soon

    def say(stage: str, steps: int) -> None:
        with contextlib.suppress(OSError):  # a script that becomes a daemon closes what it has not opened
            progress.write(json.dumps({"stage": stage, "steps": steps}) + "\n")

    def finish(ended: str, code: int, error: str = "") -> NoReturn:
        try:
            seen = replace(watch.observation(ended, error), files=own_files(script))
        except Exception:
            traceback.print_exc()
            os._exit(OWN_FAULT)
        with write(folder / "observation.json", "w") as file:
            json.dump(asdict(seen), file)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    stages = at_pace(OBSERVE if order.observes else TRIAL, order.pace)
    homes = (str(Path.cwd()), str(Path(script).parent))
    own = (order.compile_cache,) if order.compile_cache else ()
    watch = ScriptWatch(folder, stages, say, lambda: finish("measured", 0), homes, order.observes, own)
    _seed(order.seed)
    watch.install()
    if "brim" in Path(order.script).read_text(errors="replace"):  # importing it takes a second
        watch_brims_feeds(watch.loaders)
    apply_cures(order.cures)
    ended, code, error = run_script(order)
    if not watch.is_here:
        os._exit(code)
    finish(ended, code, error.replace(watch.files.tree.folder, ""))


def run_script(order: Order) -> tuple[str, int, str]:
    """Run it to its end: how it ended, its exit code, and its error in a line."""
    path = Path(order.script).absolute()
    sys.argv = [order.script, *order.arguments]
    sys.path.insert(0, str(path.resolve().parent))
    sys.stdin = NoInput()
    os.environ.setdefault("MPLBACKEND", "Agg")  # matplotlib opens no windows
    try:
        with replaced(*((os, name, _stays_itself(getattr(os, name))) for name in ("execv", "execve"))):
            _run(path, order.source)
    except ReadsInput:
        return "failed", 1, "it asks for input (stdin): give it its values as arguments"
    except ReplacesItself:
        return "failed", 1, "it replaces itself by another program (os.exec): let it train in the process that it has"
    except SystemExit as asked:
        return _exited(asked.code)
    except KeyboardInterrupt:
        return "failed", 130, "it was interrupted"
    except BaseException as error:
        traceback.print_exc()
        return "failed", 1, _in_one_line(error)
    return "finished", 0, ""


def _stays_itself(execute: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
    """Another program in the place of this one would be neither watched nor kept from the user's files."""
    process = os.getpid()

    def executed(*arguments: Any) -> NoReturn:
        if os.getpid() == process:
            raise ReplacesItself
        execute(*arguments)

    return executed


def _exited(asked: object) -> tuple[str, int, str]:
    """How a script ended that called ``sys.exit``; a text is printed by Python, and the code is then 1."""
    if isinstance(asked, str):
        print(asked, file=sys.stderr)
    code = asked if isinstance(asked, int) else int(asked is not None)
    return ("failed", code, f"it ended with exit code {code}") if code else ("finished", 0, "")


def _run(path: Path, source: str) -> None:
    """Run a script, or another text in its place."""
    if not source:
        runpy.run_path(str(path), run_name="__main__")
        return
    module = ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)


def _in_one_line(error: BaseException) -> str:
    from brim.doctor.watching.lines.source_lines import is_own
    from brim.errors import said

    lines = [(frame.f_code.co_filename, number) for frame, number in traceback.walk_tb(error.__traceback__)]
    place = next((f"{Path(file).name}:{number}: " for file, number in reversed(lines) if is_own(file)), "")
    # An error of a DataLoader's worker has its own message in the last line, below the traceback of the worker.
    _, of_worker, traceback_text = str(error).rpartition("Original Traceback")
    first = said(error)
    return place + (f"{first} {traceback_text.strip().splitlines()[-1]}" if of_worker else first)


def _seed(seed: int) -> None:
    """Runs of one script draw the same numbers where it does not seed them itself, so that they can be compared."""
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def _die_with_parent() -> None:
    """End when the doctor is killed. Other systems than Linux have no such thing; there its caller does."""
    try:
        prctl: Any = ctypes.CDLL(None).prctl
        prctl(DIE_WITH_PARENT, signal.SIGKILL)
    except (OSError, AttributeError):
        return


if __name__ == "__main__":
    main()
