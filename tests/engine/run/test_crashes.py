"""Runs that are killed, asked to stop, or left with a damaged checkpoint, and go on with the same bits."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import brim
from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.errors import Preempted, RunFolderError

SCRIPT = """
import sys, torch, brim
from torch import nn
torch.manual_seed(0)
x = torch.randn(64, 8)
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))
class InTurns(brim.Callback):
    def on_step_end(self, trainer, step, loss):
        print(step, flush=True)
        {waits} and sys.stdin.readline()
trainer = brim.Trainer(model, brim.Loader((x, x.sum(1, keepdim=True)), 8), loss_fn=nn.MSELoss(), epochs=4, device="cpu",
                       threads=1, checkpoint_every=3, run_dir=sys.argv[1], scheduler="cosine", callbacks=[InTurns()])
try:
    trainer.fit(resume="auto", save_model=True, model_path=sys.argv[2])
except brim.BrimError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def start(folder, waits=False):
    """The script; where it ``waits``, it makes its next step when it is told to."""
    script = folder / "train.py"
    script.write_text(SCRIPT.format(waits=waits))
    arguments = [sys.executable, str(script), str(folder / "run"), str(folder / "model.safetensors")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(arguments, **pipes, text=True, bufsize=1)


def let_step(process, steps):
    """Wait for that many steps, and let it begin the next one."""
    for _ in range(steps):
        assert process.stdout.readline(), process.communicate()
        process.stdin.write("\n")


def finish(process):
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    finish(start(folder))
    return load_file(folder / "model.safetensors")


def equal(folder, weights):
    return all(torch.equal(tensor, weights[name]) for name, tensor in load_file(folder / "model.safetensors").items())


@pytest.mark.slow
def test_a_run_that_is_killed_at_random_moments_ends_with_the_same_bits(tmp_path, uninterrupted):
    moments = random.Random(0)
    for _ in range(2):
        process = start(tmp_path, waits=True)
        let_step(process, moments.randrange(4, 12))
        time.sleep(moments.random() * 0.03)  # into the step that it makes now, or its checkpoint
        process.kill()
        process.communicate()
    assert "resuming after step" in process_errors(start(tmp_path))
    assert equal(tmp_path, uninterrupted)


def process_errors(process):
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return errors


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_scheduler_that_asks_to_stop_gets_a_checkpoint_and_exit_75(tmp_path, uninterrupted, name):
    process = start(tmp_path, waits=True)
    let_step(process, 5)
    process.stdout.readline()
    process.send_signal(getattr(signal, name))
    while "stopping after this step" not in process.stderr.readline():
        pass
    _, errors = process.communicate()
    assert process.returncode == Preempted.exit_code == 75, errors
    assert f"stopped by {name} after step" in errors
    finish(start(tmp_path))
    assert equal(tmp_path, uninterrupted)


def trained(folder, epochs=2, **settings):
    torch.manual_seed(0)
    x = torch.randn(32, 4)
    model = nn.Linear(4, 1)
    data = brim.Loader((x, x.sum(1, keepdim=True)), 8)
    trainer = brim.Trainer(
        model, data, loss_fn=nn.MSELoss(), epochs=epochs, device="cpu", threads=1, run_dir=folder, **settings
    )
    return trainer, model


def spoil(checkpoint, how):
    file = checkpoint / "model.safetensors"
    if how == "flipped bit":
        content = bytearray(file.read_bytes())
        content[-3] ^= 4
        file.write_bytes(content)
    elif how == "half written":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    elif how == "missing file":
        (checkpoint / "training.pt").unlink()
    else:
        (checkpoint / "progress.json").write_text("{}")


@pytest.mark.matrix(2)
@pytest.mark.parametrize("how", ["flipped bit", "half written", "missing file", "other progress"])
def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path, how):
    expected = trained(tmp_path / "whole", epochs=3)
    expected[0].fit()
    trained(tmp_path / "run")[0].fit()
    spoil(Checkpoints(tmp_path / "run" / "checkpoints", 3).all()[-1], how)
    trainer, model = trained(tmp_path / "run", epochs=3)
    trainer.fit(resume=tmp_path / "run")
    assert torch.equal(model.weight, expected[1].weight)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "is damaged" in log and "the one before it is used" in log


def test_where_every_checkpoint_is_damaged_it_says_so(tmp_path):
    trained(tmp_path / "run")[0].fit()
    for checkpoint in Checkpoints(tmp_path / "run" / "checkpoints", 3).all():
        spoil(checkpoint, "flipped bit")
    with pytest.raises(RunFolderError, match="all checkpoints"):
        trained(tmp_path / "run", epochs=3)[0].fit(resume=tmp_path / "run")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left"),
        (
            RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
            "the disk is full, by what",
        ),
    ],
    ids=["ours", "torch's"],
)
def test_a_full_disk_while_saving_is_a_warning_and_training_goes_on(error, told, tmp_path, monkeypatch):
    expected = trained(tmp_path / "whole", epochs=3)
    expected[0].fit()
    save = torch.save

    def full(value, path, *arguments):
        if "step-000000008" in str(path):
            raise error
        save(value, path, *arguments)

    monkeypatch.setattr(torch, "save", full)
    trainer, model = trained(tmp_path / "run", epochs=3)
    assert trainer.fit().steps == 12
    assert torch.equal(model.weight, expected[1].weight)
    assert [path.name for path in sorted((tmp_path / "run" / "checkpoints").glob("step-*"))] == [
        "step-000000004", "step-000000012",
    ]  # fmt: skip
    assert told in (tmp_path / "run" / "log.txt").read_text()


def test_a_folder_that_becomes_read_only_ends_no_run(tmp_path, monkeypatch):
    def refuse(self, *_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    trainer, _ = trained(tmp_path / "run")
    monkeypatch.setattr("brim.engine.checkpoints.whole_folder.WholeFolder.__enter__", refuse)
    assert trainer.fit().steps == 8
    assert "Permission denied" in (tmp_path / "run" / "log.txt").read_text()


def test_a_run_folder_left_half_made_is_made_anew(tmp_path):
    """Killed between its first and its last file."""
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    result = brim.Trainer(
        nn.Linear(4, 1), (torch.randn(32, 4), torch.randn(32, 1)), loss_fn=nn.MSELoss(), device="cpu", threads=1,
        run_dir=tmp_path / "run",
    ).fit(resume="auto")  # fmt: skip
    assert result.steps == 1


@pytest.mark.parametrize("harm", ["flip", "older"])
def test_where_the_best_weights_are_lost_the_result_is_of_the_weights_that_are_there(tmp_path, harm):
    x, y = torch.randn(64, 4), torch.randn(64, 1)

    class Spoil(brim.Callback):
        """Training gets worse at its end, and what was kept of its best is not there any more."""

        def on_evaluate(self, trainer, metrics):
            self.evaluations = getattr(self, "evaluations", 0) + 1
            with torch.no_grad():
                trainer.model.weight.add_(1.0)

        def on_epoch_end(self, trainer, epoch):
            if epoch < 3:
                return
            best = tmp_path / "run" / "checkpoints" / "best"
            if harm == "flip":
                content = bytearray((best / "model.safetensors").read_bytes())
                content[-1] ^= 1
                (best / "model.safetensors").write_bytes(bytes(content))
            else:
                Checkpoints(best.parent, 3).save_best(nn.Linear(4, 1), 999)

    model = nn.Linear(4, 1)
    trainer = brim.Trainer(
        model, (x, y), (x, y), loss_fn=nn.MSELoss(), device="cpu", threads=1, epochs=3, lr=1e-6,
        callbacks=[Spoil()], run_dir=tmp_path / "run",
    )  # fmt: skip
    result = trainer.fit()
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert any(event["kind"] == "best" and "could not be written" in event["line"] for event in events)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    judged = [line["eval/loss"] for line in lines if "eval/loss" in line]
    assert result.metrics["loss"] == pytest.approx(judged[-1])
