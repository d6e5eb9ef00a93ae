"""A child process that watches a script: started, followed, and ended with everything that it started."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from brim.doctor.observation import Observation, read_observation
from brim.doctor.order import Order
from brim.doctor.orphans import children_of, ending_orphans
from brim.doctor.stages import EACH_TOLD
from brim.errors import BrimError

TOKEN = "BRIM_DOCTOR_CHILD"  # in the environment of everything that the script starts
LOOK_EVERY = 0.05  # seconds
LAST_LINES = 15
PAUSE = 0.5  # seconds for a process to write its stack


class ScriptFailed(BrimError):
    """The script that was to be examined failed by itself; the exit code is its own."""

    def __init__(self, sentence: str, exit_code: int) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Ended:
    """How a child process ended."""

    seen: Observation | None
    exit_code: int
    output: str  # the last lines that the script printed
    trace: Path | None = None
    crash: str = ""  # the stacks of all threads where a signal ended it


def watch_script(order: Order, patience: float, say: Callable[[str], None], keep_trace: Path | None = None) -> Ended:
    """Run a script in a child process and return what was seen.

    Args:
        order: The script, and what to do with it.
        patience: Seconds without a sign of progress after which it hangs.
        say: Told what happens.
        keep_trace: Where to keep the profiler's trace.

    Raises:
        ScriptFailed: It hangs.
    """
    with tempfile.TemporaryDirectory(prefix="brim-doctor-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        order = replace(order, folder=name)
        (folder / "order.json").write_text(json.dumps(asdict(order)))
        with ending_orphans(), _started(folder) as process:
            _follow(process, folder, patience, say)
        return _ended(process.returncode, folder, keep_trace)


@contextmanager
def _started(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A child in a session of its own; at the end nothing of it is left."""
    token = uuid.uuid4().hex
    # Output is not buffered in the script, so that the last lines before a crash are there.
    environment = {**os.environ, TOKEN: token, "PYTHONUNBUFFERED": "1"}
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "brim.doctor.child", str(folder / "order.json")],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, env=environment,
        )  # fmt: skip
        try:
            yield process
        finally:
            _end_everything(process, token)


def _end_everything(process: "subprocess.Popen[bytes]", token: str) -> None:
    """The session, and what has left it (a daemon, a server of processes) but still has our mark."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pid in marked_processes(token):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def marked_processes(token: str) -> list[int]:
    """Processes that have the mark in their environment; none where the system does not show it."""
    mark = f"{TOKEN}={token}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _follow(process: "subprocess.Popen[bytes]", folder: Path, patience: float, say: Callable[[str], None]) -> None:
    """Wait for its end; a child that shows no progress for too long hangs."""
    told, said, since = "", "", time.monotonic()
    while process.poll() is None:
        time.sleep(LOOK_EVERY)
        progress = _last_progress(folder)
        if progress != told:
            told, since = progress, time.monotonic()
            if (sentence := _sentence(progress)) != said:
                said = sentence
                say(said)
        elif time.monotonic() - since > patience:
            raise _hangs(process, folder, patience, progress)


def _last_progress(folder: Path) -> str:
    try:
        lines = (folder / "progress.jsonl").read_text().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def _sentence(progress: str) -> str:
    try:
        told = json.loads(progress)
    except ValueError:
        return "starting the script"
    stage, steps = told["stage"], told["steps"]
    if stage == "warm-up":
        return "the script starts"
    doing = {
        "timed": "timing steps", "sampled": "looking at lines", "profiled": "profiling some steps",
        "ceiling": "the same step on batches that are there",
    }.get(stage, "trying settings")  # fmt: skip
    return f"step {steps}: {doing}"


def _hangs(process: "subprocess.Popen[bytes]", folder: Path, patience: float, progress: str) -> ScriptFailed:
    others = len(children_of(process.pid))
    process.send_signal(signal.SIGUSR1)
    time.sleep(PAUSE)
    steps = json.loads(progress)["steps"] if progress else 0
    where = _innermost_line(folder)
    done = f"after {_in_words(steps)}" if steps else f"before its first optimizer step{_other_processes(others)}"
    return ScriptFailed(
        f"the script showed no progress for {patience:.0f} s, {done}{where}; if it only takes long, give it more time"
        " with --patience SECONDS",
        1,
    )


def _other_processes(others: int) -> str:
    """Processes in which it may well train, unseen."""
    return f" (it has started {others} other process{'es' * (others > 1)}, where none is seen)" if others else ""


def _in_words(steps: int) -> str:
    """
    >>> _in_words(1), _in_words(8), _in_words(300)
    ('its first optimizer step', '8 optimizer steps', 'some 300 optimizer steps')
    """
    if steps == 1:
        return "its first optimizer step"
    return f"{'some ' if steps > EACH_TOLD else ''}{steps} optimizer steps"


def _innermost_line(folder: Path) -> str:
    """The innermost line outside of libraries, from the stack that faulthandler wrote."""
    from brim.user_line import is_users_own

    try:
        lines = (folder / "stacks.txt").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, _, rest = line.partition('File "')
        file, _, number = rest.partition('", line ')
        if file and is_users_own(file):
            return f", at {Path(file).name}:{number.split()[0]}"
    return ""


def _ended(code: int, folder: Path, keep_trace: Path | None) -> Ended:
    output = (folder / "output.txt").read_text(errors="replace").splitlines()
    crash = (folder / "crash.txt").read_text(errors="replace") if code < 0 and (folder / "crash.txt").exists() else ""
    trace = folder / "trace.json"
    if keep_trace is not None and trace.exists():
        keep_trace.write_bytes(trace.read_bytes())
    try:
        seen = read_observation((folder / "observation.json").read_text())
    except FileNotFoundError:
        seen = None
    return Ended(seen, code, "\n".join(output[-LAST_LINES:]), keep_trace, crash)
