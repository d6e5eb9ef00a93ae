import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from brim.engine.run.interrupt import Interrupt


def test_the_first_ctrl_c_asks_and_the_second_stops_at_once():
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_handler_before_is_put_back():
    before = signal.getsignal(signal.SIGINT)
    with Interrupt():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_nothing_is_installed():
    found = []

    def enter():
        with Interrupt() as interrupt:
            found.append(interrupt.requested)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [False]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_the_signals_of_schedulers_ask_too_and_may_come_twice(name, capfd):
    with Interrupt() as interrupt:
        for _ in range(2):
            os.kill(os.getpid(), getattr(signal, name))
        assert interrupt.requested
        assert interrupt.by == name
    assert capfd.readouterr().err.count(f"{name}: stopping after this step, with a checkpoint") == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


SCRIPT = """\
import os
import signal
import sys

import torch
from torch import nn

import brim


class Sends(brim.Callback):
    def on_step_end(self, trainer, step, loss):
        if step == 3:
            os.kill(os.getpid(), getattr(signal, sys.argv[1]))


x = torch.randn(40, 3)
trainer = brim.Trainer(
    nn.Linear(3, 1), brim.Loader((x, x), 4), loss_fn=nn.MSELoss(), device="cpu", threads=1, run_dir="run", epochs=9,
    callbacks=[Sends()],
)
try:
    trainer.fit()
except brim.BrimError as error:
    print(type(error).__name__, error.exit_code)
except KeyboardInterrupt as error:
    print("KeyboardInterrupt", str(error)[:20])
    raise
"""


def run_script(tmp_path, name):
    """The script in a shell, which tells the status as a user sees it."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = f"{sys.executable} script.py {name}; echo $?"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    page = (tmp_path / "run/report.html").read_text()
    return done.stdout.splitlines(), events[-1], page


@pytest.mark.slow
def test_ctrl_c_in_a_script_ends_it_with_130_and_is_a_keyboard_interrupt(tmp_path):
    lines, last, page = run_script(tmp_path, "SIGINT")
    assert lines == ["KeyboardInterrupt stopped by Ctrl-C af", "130"]
    assert (last["kind"], last["by"]) == ("interrupted", "Ctrl-C")
    assert '"ended": "by Ctrl-C"' in page or '"ended":"by Ctrl-C"' in page
    assert (tmp_path / "run/checkpoints/step-000000003").is_dir()


@pytest.mark.slow
def test_a_run_that_the_system_stops_is_not_marked_failed(tmp_path):
    lines, last, page = run_script(tmp_path, "SIGTERM")
    assert lines == ["Preempted 75", "0"]
    assert (last["kind"], last["by"]) == ("interrupted", "SIGTERM")
    assert '"ended": "by SIGTERM"' in page or '"ended":"by SIGTERM"' in page


def test_a_handler_that_python_did_not_install_is_left_alone(monkeypatch):
    """As of a program in C that runs Python: it could not be put back."""
    get = signal.getsignal
    monkeypatch.setattr(signal, "getsignal", lambda number: None if number == signal.SIGUSR1 else get(number))
    with Interrupt():
        assert get(signal.SIGUSR1) is signal.SIG_DFL and get(signal.SIGTERM) is not signal.SIG_DFL
    assert get(signal.SIGTERM) is signal.SIG_DFL
