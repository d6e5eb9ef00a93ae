"""``brim train --ranks``: real processes through torch's launcher, one of which is killed, or all asked to stop."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.waiting import wait_until

from brim.cli.launch import (
    VERDICT,
    default_ranks,
    is_a_rank,
    launch_ranks,
    no_restart_on_permanent_error,
    was_restarted,
)
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


@pytest.fixture
def torchrun(monkeypatch):
    """``torchrun(action)``: torch's launcher is this function meanwhile; gives the arguments of its calls."""
    import torch.distributed.run

    for name in ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "OMP_NUM_THREADS", VERDICT):
        monkeypatch.setenv(name, "")  # so that whatever is set is taken back
        monkeypatch.delenv(name)
    calls = []

    def replace(action):
        monkeypatch.setattr(torch.distributed.run, "main", lambda arguments: calls.append(arguments) or action())
        return calls

    return replace


def test_ranks_are_started_by_torchs_launcher_in_one_folder(torchrun, monkeypatch):
    calls = torchrun(lambda: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    launch_ranks(4, ["a.yaml", "trainer.run_dir=here"], has_folder=True)
    options, _, command = " ".join(calls[0]).partition(" -m ")
    assert command == "brim train a.yaml trainer.run_dir=here"
    assert {"--standalone", "--nproc-per-node=4", "--max-restarts=3"} < set(options.split()) and "SIGUSR1" in options
    assert os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "90" and os.environ["OMP_NUM_THREADS"] == "3"
    launch_ranks(2, ["a.yaml"], has_folder=False)
    assert calls[1][-2] == "a.yaml" and re.fullmatch(r"trainer\.run_dir=runs/\d{8}-\d{6}-2-ranks", calls[1][-1])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGUSR1, 75)])
def test_a_launcher_that_is_stopped_ends_with_the_code_of_that(torchrun, number, code):
    from torch.distributed.elastic.multiprocessing.api import SignalException

    def stopped():
        raise SignalException("stopped", number)

    torchrun(stopped)
    with pytest.raises(SystemExit) as ended:
        launch_ranks(2, [], has_folder=True)
    assert ended.value.code == code


@pytest.mark.parametrize(("verdict", "code"), [("2", 2), (None, 9)])
def test_ranks_that_fail_end_it_with_what_they_refused_or_the_code_of_the_first(torchrun, verdict, code):
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    def failed():
        if verdict is not None:
            Path(os.environ[VERDICT]).write_text(verdict)
        raise ChildFailedError("train", {1: ProcessFailure(local_rank=1, pid=7, exitcode=9, error_file="none")})

    torchrun(failed)
    with pytest.raises(SystemExit) as ended:
        launch_ranks(2, [], has_folder=True)
    assert ended.value.code == code and not Path(os.environ[VERDICT]).parent.exists()


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
