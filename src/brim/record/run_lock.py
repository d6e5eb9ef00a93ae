"""Who trains in a run folder: one process, be it on this machine or on another that sees the same folder.

A file names the owner: machine, process, and when that process was started, since numbers of processes are given again.
An owner on this machine is looked up, so a run that was killed can be resumed at once. One on another machine cannot
be: it touches the file every few seconds, and is taken for dead when it has not done so for a minute. Nothing of this
needs ``flock``, which not every network file system has; where the file cannot be written, there is no lock.
"""

import json
import os
import platform
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from brim.errors import RunFolderError

LOCK = "run.lock"
HEARTBEAT_S = 10.0
STALE_S = 60.0  # without a sign of life, of an owner on another machine
POLL_S = 1.0
PROC = Path("/proc")


@dataclass(frozen=True)
class Owner:
    """A process that trains in a folder."""

    host: str
    machine: str  # processes can be looked up where this is the same
    process: int
    started: str  # as the system says it
    token: str  # of this run alone
    folder: str  # by its number on the disk: a copy of it is another one
    since: str

    @classmethod
    def of_this_process(cls, folder: Path) -> "Owner":
        number = os.getpid()
        return cls(
            platform.node(), machine_id(), number, process_start(number) or "", uuid.uuid4().hex, folder_id(folder),
            time.strftime("%Y-%m-%d %H:%M:%S"),
        )  # fmt: skip

    def is_alive(self, folder: Path) -> bool | None:
        """Whether it still runs; None where that cannot be told from here."""
        if self.machine != machine_id() or not self.started:
            return None
        if self.folder != folder_id(folder):  # the folder was copied while its run went on
            return False
        return process_start(self.process) == self.started

    def __str__(self) -> str:
        where = "" if self.machine == machine_id() else f" on {self.host}"
        return f"process {self.process}{where} since {self.since}"


WORDS = [f.name for f in fields(Owner) if f.name != "process"]


class RunLock:
    """Held from :meth:`take` to :meth:`release`, or until the process ends, however it ends."""

    def __init__(self, path: Path, owner: Owner | None) -> None:
        self.path = path
        self.owner = owner  # None where there can be no lock
        self._over = threading.Event()
        self._heartbeats = threading.Thread(target=self._send_heartbeats, daemon=True, name="brim-run-lock")
        if owner is not None:
            self._heartbeats.start()

    @classmethod
    def take(cls, folder: Path, say: Callable[[str], None] = lambda sentence: None, patience: float = 0.0) -> "RunLock":
        """Own the folder, or raise RunFolderError where another process does. ``say`` hears of waiting.

        ``patience``: seconds for the owner to end, which one does that was cut off from its ranks and has not noticed.
        """
        path, owner = folder / LOCK, Owner.of_this_process(folder)
        left = int(patience / POLL_S)
        try:
            while not _create(path, owner):
                other = read_owner(path)
                if other is None and not path.exists():
                    continue  # given back meanwhile
                if _is_alive(path, other, folder, say):
                    is_self = other is not None and (other.machine, other.process) == (owner.machine, owner.process)
                    if left <= 0 or is_self:
                        raise RunFolderError(
                            f"{folder} is in use by {other or 'another process'}; wait for it to end, or choose "
                            "another run_dir"
                        )
                    if left == int(patience / POLL_S):
                        say(f"{folder} is in use by {other or 'another process'}: waiting for it to end")
                    left -= 1
                    time.sleep(POLL_S)
                    continue
                _replace(path, owner)
                if (now := read_owner(path)) is not None and now.token == owner.token:
                    break
        except OSError:  # a file system that cannot be written to: what a run writes there says so itself
            return cls(path, None)
        return cls(path, owner)

    def check(self) -> None:
        """Raise RunFolderError where another process has taken the folder over: this one was thought dead."""
        if self.owner is None:
            return
        other = read_owner(self.path)
        if other is not None and other.token != self.owner.token:
            raise RunFolderError(
                f"{self.path.parent} was taken over by {other} while this process did not answer; that one goes on"
            )

    def release(self) -> None:
        """Let others have the folder."""
        self._over.set()
        if self.owner is None:
            return
        self._heartbeats.join()
        now = read_owner(self.path)
        if now is not None and now.token == self.owner.token:
            with suppress(OSError):
                self.path.unlink()

    def _send_heartbeats(self) -> None:
        while not self._over.wait(HEARTBEAT_S):
            with suppress(OSError):
                os.utime(self.path)


def read_owner(path: Path) -> Owner | None:
    """Who the file names; None where there is no such file, or it says nothing."""
    try:
        return owner_of(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def owner_of(text: str) -> Owner | None:
    """Who the content of such a file names; None where it names nobody."""
    try:
        value = json.loads(text)
        told = {name: str(value[name]) for name in WORDS}
        return Owner(**told, process=int(value["process"]))
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None


def _create(path: Path, owner: Owner) -> bool:
    """Make the file, unless it is there; it is never seen without its content, where links can be made."""
    aside = write_aside(path, owner)
    try:
        os.link(aside, path)
        return True
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(json.dumps(asdict(owner)))
            return True
        except FileExistsError:
            return False
    finally:
        aside.unlink(missing_ok=True)


def _replace(path: Path, owner: Owner) -> None:
    write_aside(path, owner).replace(path)


def write_aside(path: Path, owner: Owner) -> Path:
    """The lock in a file beside it, to be put in its place at once."""
    aside = path.with_name(f".{path.name}.{owner.token}")
    aside.write_text(json.dumps(asdict(owner)), encoding="utf-8")
    return aside


def _is_alive(path: Path, owner: Owner | None, folder: Path, say: Callable[[str], None]) -> bool:
    known = None if owner is None else owner.is_alive(folder)
    if known is not None:
        return known
    if _age(path) > STALE_S:
        return False
    say(f"{folder} was in use by {owner or 'another process'}: waiting {STALE_S:.0f} s for a sign that it still is")
    first = _touched(path)
    for _ in range(int(STALE_S / POLL_S)):
        time.sleep(POLL_S)
        if _touched(path) != first:
            return path.exists()  # it lives; or it has ended, and given the folder back
    return False


def _age(path: Path) -> float:
    """Seconds since a sign of life, by the clock of the file system: machines' own may differ."""
    clock = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        clock.touch()
        return clock.stat().st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
    finally:
        clock.unlink(missing_ok=True)


def _touched(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def folder_id(folder: Path) -> str:
    """What tells a folder from its copy, on one machine."""
    found = folder.stat()
    return f"{found.st_dev}-{found.st_ino}"


def machine_id() -> str:
    """The same for all processes that can look each other up: one start of one system, one space of their numbers."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return f"{platform.node()} {uuid.getnode()}"


def process_start(number: int) -> str | None:
    """When a process was started, as the system says it; None where there is none of that number."""
    if (PROC / "self/stat").exists():
        try:
            state, *rest = (PROC / str(number) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if state in "ZX" else rest[18]
    try:
        asked = subprocess.run(["ps", "-o", "lstart=", "-p", str(number)], capture_output=True, text=True, check=False)
    except OSError:  # Windows: a name for "unknown", which is never equal to what a lock says
        return ""
    return asked.stdout.strip() or None
