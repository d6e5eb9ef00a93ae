"""The same under torch's own launcher: processes that die, and a scheduler that wants its machine back."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.waiting import wait_until
from rank_training import ROUNDING, are_the_same_bits, difference, train

HERE = Path(__file__).parent
STEPS = 60

SCRIPT = f"""
import os, signal, sys, threading
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
import torch
import brim
from rank_training import this_rank, train

run, told, victim = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

class Meanwhile(brim.Callback):
    def on_step_end(self, trainer, step, loss):
        if this_rank() == victim and step == 23 and not told.exists():
            told.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if victim < 0 and step == 10:
            wait_for_signal()

def wait_for_signal():
    came, handle = threading.Event(), signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *arguments: (came.set(), handle(*arguments)))
    told.touch()
    came.wait()

trained = train(max_steps={STEPS}, run_dir=run, resume="auto", checkpoint_every=5, optimizer="AdamW", lr=1e-2,
                callbacks=[Meanwhile()])
if this_rank() == 0:
    torch.save(trained["weights"], run / "weights.pt")
"""


@pytest.fixture
def torchrun(tmp_path, nothing_remembered):
    """Starts the script under torchrun; what is still running afterwards is ended."""
    (tmp_path / "script.py").write_text(SCRIPT)
    started = []

    def start(world, *options, victim=-1):
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}", "--standalone", *options]
        process = subprocess.Popen(
            [*command, tmp_path / "script.py", tmp_path / "run", tmp_path / "told", str(victim)], cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def straight():
    return train(max_steps=STEPS, optimizer="AdamW", lr=1e-2)


def resumed(run):
    return train(max_steps=STEPS, optimizer="AdamW", lr=1e-2, run_dir=run, resume=run)


@pytest.mark.slow
def test_a_rank_that_is_killed_costs_a_restart_and_nothing_else(launch, torchrun, tmp_path):
    process = torchrun(4, "--max-restarts=2", victim=2)
    _, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    (alone,) = launch(1, straight)
    assert difference({"weights": torch.load(tmp_path / "run" / "weights.pt")}, alone) <= ROUNDING
    assert "resuming after step 20" in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.slow
def test_a_launcher_that_is_stopped_leaves_a_checkpoint_of_its_last_step(launch, torchrun, tmp_path):
    process, told = torchrun(2), tmp_path / "told"
    wait_until(told.exists, process)
    os.kill(process.pid, signal.SIGTERM)
    process.communicate()
    newest = max(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert 10 <= int(newest.removeprefix("step-")) < STEPS
    again, whole = launch(2, resumed, run=str(tmp_path / "run")), launch(2, straight)
    assert all(are_the_same_bits(one, other) for one, other in zip(again, whole, strict=True))
