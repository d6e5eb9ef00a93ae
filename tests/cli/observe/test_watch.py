"""``brim watch``: once and for scripts, in a terminal until Ctrl-C, and one sentence for what cannot be."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios

import pytest
from helpers.command import Command
from helpers.nvml import NvmlDouble, h200
from helpers.runs import lock_run, write_run

from brim.cli.observe import watch
from brim.observe import snapshot
from brim.sensors.nvml import NvmlGpus

LINES = [{"step": 50, "loss": 0.5, "step_ms": 25.0, "samples_per_second": 1280.0}]
HIDE, SHOW, LEAVE = "\x1b[?25l", "\x1b[?25h", "\x1b[?1049l"


@pytest.fixture
def brim(monkeypatch, capsys):
    return Command(monkeypatch, capsys)


@pytest.fixture
def project(tmp_path):
    lock_run(write_run(tmp_path / "runs" / "lstm", LINES, about={"model": "Net", "planned_steps": 200}))
    return tmp_path


def test_where_there_is_no_terminal_it_is_printed_once(brim, project):
    done = brim(project, "watch")
    assert done.returncode == 0 and done.stderr == "" and "\x1b" not in done.stdout
    assert "RAM" in done.stdout and "runs/lstm  Net" in done.stdout and "step 50 of 200 (25 %)" in done.stdout


def test_json_for_scripts(brim, project):
    told = json.loads(brim(project, "watch", "--once", "--json").stdout)
    (job,) = [job for job in told["jobs"] if job["folder"] == str(project / "runs" / "lstm")]
    assert (job["step"], job["loss"], job["steps_per_second"], job["processes"]) == (50, 0.5, 40.0, [os.getpid()])
    assert told["host"]["cores"] > 0 and told["host"]["cpu"] is not None


def test_json_has_what_a_card_tells(brim, project, monkeypatch):
    double = NvmlDouble([h200()])
    monkeypatch.setattr(snapshot, "open_gpus", lambda: (NvmlGpus(double), ""))
    told = json.loads(brim(project, "watch", "--once", "--json").stdout)
    assert (told["source"], told["gpus"][0]["duty_cycle"], told["gpus"][0]["tensor"]) == ("NVML", 97, 44.0)
    assert not double.is_open and double.samples == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["missing"], "there is no folder missing"), (["--every", "0"], "Invalid value for '--every'")],
)
def test_what_cannot_be_is_one_sentence(brim, project, arguments, sentence):
    done = brim(project, "watch", *arguments)
    assert done.returncode == 2 and sentence in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.fixture
def looks(monkeypatch):
    """``looks(n)``: Ctrl-C comes after so many looks."""

    def end_after(number):
        left = [number]

        def sleep(seconds):
            left[0] -= seconds == 0.5
            if not left[0]:
                raise KeyboardInterrupt

        monkeypatch.setattr(watch.time, "sleep", sleep)

    return end_after


def test_json_goes_on_with_a_line_a_look(brim, project, looks):
    looks(3)
    done = brim(project, "watch", "--json", "--every", "0.5")
    assert done.returncode == 0 and [bool(json.loads(line)["host"]) for line in done.stdout.splitlines()] == [True] * 3


def test_a_terminal_shows_every_look_on_its_other_screen_and_is_given_back(brim, project, looks, monkeypatch):
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)
    looks(2)
    before = signal.getsignal(signal.SIGTERM)
    done = brim(project, "watch", "--every", "0.5")
    assert done.returncode == 0 and done.stdout.count("runs/lstm") == 2 and done.stdout.startswith("\x1b[?1049h")
    assert LEAVE in done.stdout.rpartition("runs/lstm")[2] and SHOW in done.stdout.rpartition("runs/lstm")[2]
    assert signal.getsignal(signal.SIGTERM) is before


class Terminal:
    """A terminal of some size with ``brim watch`` in it."""

    def __init__(self, folder, columns, **settings):
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, columns))
        environment = {**os.environ, "TERM": "xterm-256color", **settings}
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "brim", "watch", "--every", "0.2"], cwd=folder, stdin=slave, stdout=slave,
            stderr=slave, env=environment, start_new_session=True,
        )  # fmt: skip
        self.slave, self.text = slave, ""

    def read_until(self, words):
        while words not in self.text:
            self.text += self._more() or self._fail(words)

    def end_by(self, number):
        """The exit code after a signal, with all that was written."""
        os.kill(self.process.pid, number)
        code = self.process.wait()
        while more := self._more(wait=0.0):
            self.text += more
        return code

    def _more(self, wait=1.0):
        while self.process.poll() is None or wait == 0.0:
            if select.select([self.master], [], [], wait)[0]:
                return os.read(self.master, 65536).decode("utf-8", "replace")
            if wait == 0.0:
                return ""
        return ""

    def _fail(self, words):
        raise AssertionError(f"{words!r} is not on the screen: {self.text!r}")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.slave)
        os.close(self.master)


@pytest.fixture
def terminal(project):
    opened = []

    def start(columns, **settings):
        opened.append(Terminal(project, columns, **settings))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("columns", [46, 200])
def test_it_goes_on_until_a_signal_and_gives_the_terminal_back(terminal, columns, number):
    screen = terminal(columns)
    screen.read_until("step 50 of 200")
    seen = screen.text.count("brim watch")
    while screen.text.count("brim watch") < seen + 2:  # it is drawn again and again
        screen.text += screen._more() or screen._fail("the next look")
    assert screen.end_by(number) == 0
    assert screen.text.count(HIDE) == screen.text.count(SHOW) == 1 and LEAVE in screen.text
    assert screen.text.rindex(SHOW) > screen.text.rindex("brim watch") and "Traceback" not in screen.text
    assert termios.tcgetattr(screen.slave) == screen.before


@pytest.mark.slow
def test_without_colours_and_in_a_dumb_terminal(terminal):
    screen = terminal(80, NO_COLOR="1")
    screen.read_until("step 50 of 200")
    assert screen.end_by(signal.SIGINT) == 0 and "\x1b[33m" not in screen.text
    screen = terminal(80, TERM="dumb")  # which cannot draw anew: once
    screen.read_until("step 50 of 200")
    assert screen.process.wait() == 0 and HIDE not in screen.text


@pytest.mark.slow
def test_json_ends_when_nobody_reads_it(project):
    program = [sys.executable, "-m", "brim", "watch", "--json", "--every", "0.2"]
    started = subprocess.Popen(program, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = [json.loads(started.stdout.readline()) for _ in range(2)]
    started.stdout.close()
    assert started.stderr.read() == "" and started.wait() == 0
    assert lines[0]["time"] < lines[1]["time"] and not (project / "brim-error.txt").exists()
