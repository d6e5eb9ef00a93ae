"""``brim train --ranks``: real processes through torch's launcher, one of which is killed, or all asked to stop."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.waiting import wait_until

from brim.cli.launch import VERDICT, default_ranks, is_a_rank, no_restart_on_permanent_error, was_restarted
from brim.engine.components.settings import TrainerSettings
from brim.errors import ConfigError, Preempted
from brim.hardware import Gpu, Inventory

SETTINGS = [
    "trainer.device=cpu", "trainer.epochs=30", "trainer.checkpoint_every=5", "trainer.eval_every=10", "model.name=bpr",
    "data.n_users=100", "data.n_items=60", "train_ds.batch_size=256", "trainer.threads=1",
]  # fmt: skip


def brim(*arguments: str, folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "brim", "train", *SETTINGS, *arguments], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def has_checkpoint(run: Path) -> bool:
    return any(run.glob("checkpoints/step-*"))


def rank_processes(of: int) -> dict[int, int]:
    """The pid of each rank below a process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = dict(
                entry.split("=", 1) for entry in (folder / "environ").read_text().split("\0") if "=" in entry
            )
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
        if parent == of and "RANK" in environment:
            found[int(environment["RANK"])] = int(folder.name)
    return found


@pytest.mark.slow
def test_a_rank_that_is_killed_is_started_again_and_being_asked_to_stop_ends_all_with_a_checkpoint_and_75(tmp_path):
    """That it ends with the right weights is shown in tests/ranks."""
    run = tmp_path / "run"
    running = brim("--ranks", "2", "trainer.run_dir=run", "trainer.epochs=1000000", folder=tmp_path)
    wait_until(lambda: has_checkpoint(run), running)
    os.kill(rank_processes(running.pid)[1], signal.SIGKILL)
    wait_until(lambda: "resuming after step" in (run / "log.txt").read_text(), running)
    before = {path.name for path in run.glob("checkpoints/step-*")}
    wait_until(lambda: {path.name for path in run.glob("checkpoints/step-*")} - before, running)
    running.send_signal(signal.SIGUSR1)  # torch's launcher alone would die of it, and leave the ranks; SIGTERM it minds
    assert running.wait() == 75, running.communicate()[1][-3000:]
    assert "epoch" in (run / "log.txt").read_text() and not (run / "result.json").exists()


@pytest.mark.slow
def test_ranks_train_to_the_end(tmp_path):
    together = brim("--ranks", "2", "trainer.run_dir=together", folder=tmp_path)
    assert together.wait() == 0, together.communicate()[1][-3000:]
    result = json.loads((tmp_path / "together" / "result.json").read_text())
    assert result["steps"] > 5 and set(result["table"]) == {"BPR (ids)", "popularity", "EASE"}


@pytest.mark.slow
def test_what_is_refused_is_not_tried_again(tmp_path):
    running = brim("--ranks", "2", "data.name=ml-1m", "data.path=missing", folder=tmp_path)
    assert running.wait() == 2
    said = running.communicate()[1]
    assert said.count("there is no folder missing") <= 2  # once for each rank, not for each restart


def test_who_is_a_rank(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    assert not is_a_rank() and not was_restarted()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert is_a_rank() and not was_restarted()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert was_restarted()


def test_a_refusal_is_left_for_those_who_come_after(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(VERDICT, str(tmp_path / "verdict"))
    with pytest.raises(Preempted), no_restart_on_permanent_error():
        raise Preempted("come again")
    with pytest.raises(ConfigError), no_restart_on_permanent_error():
        raise ConfigError("never")
    with pytest.raises(SystemExit) as ended, no_restart_on_permanent_error():
        pytest.fail("it was tried again")
    assert ended.value.code == 2


@pytest.mark.parametrize(("tier", "ranks"), [(None, 8), ("large", 8), ("medium", 4), ("small", 2)])
def test_a_tier_decides_how_many_ranks_are_started_at_most(monkeypatch, tier, ranks):
    cards = tuple(Gpu(index, "Card", 2**30) for index in range(8))
    here = Inventory(cards, has_mps=False, cores=4, python="3.11", torch="2.13")
    monkeypatch.setattr("brim.hardware.inventory", lambda: here)
    assert default_ranks(TrainerSettings(tier=tier)) == ranks
    assert default_ranks(TrainerSettings(tier=tier, device="cpu")) == 1
