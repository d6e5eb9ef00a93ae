"""The classifier on shards, killed in the middle of an epoch: it goes on with the same samples to the same weights."""

import hashlib
import os
import signal
import time
from pathlib import Path

import pytest
from helpers.pictures import coloured_shards
from rank_training import are_the_same_bits, this_rank

import brim
from brim.config import load_config
from brim.config.workload import open_workload
from brim.engine.checkpoints.whole_folder import is_checkpoint
from brim.engine.trainer import run_now

KILLED, SAVED, STEPS = 9, 8, 12  # six steps are an epoch: in the middle of the second


class Seen(brim.Callback):
    """The samples of each step as they were handed to the model, random cuts and all."""

    def __init__(self):
        self.samples = {}

    def on_step_end(self, trainer, step, loss):
        (batch,) = run_now(trainer).window
        self.samples[step] = [(int(y), hashlib.sha256(x.numpy().tobytes()).hexdigest()) for x, y in zip(*batch)]  # noqa: B905


class Killed(brim.Callback):
    """As a node that is lost: no process ends in order, and none is told. The checkpoint before is on the disk."""

    def on_step_end(self, trainer, step, loss):
        if step == KILLED:
            while not is_checkpoint(self.run / "checkpoints" / f"step-{SAVED:09d}"):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

    def __init__(self, run):
        self.run = Path(run)


def train_shards(shards, run, kills=False, resume=False):
    settings = [
        f"data.train={shards}", "data.size=16", "model.width=4", "model.depth=1", "train_ds.batch_size=4",
        "train_ds.num_workers=1", "trainer.device=cpu", "trainer.epochs=2", "trainer.threads=1",
        "trainer.checkpoint_every=2", f"trainer.run_dir={run}", "trainer.loggers=false",
    ]  # fmt: skip
    seen = Seen()
    callbacks = [seen, *([Killed(run)] if kills else [])]
    trainer = open_workload(load_config(None, ["workload=classifier", *settings])).build_trainer(callbacks=callbacks)
    trainer.fit(resume=run if resume else None)
    return {"rank": this_rank(), "seen": seen.samples, "weights": trainer.model.state_dict()}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 1])
def test_after_a_kill_it_goes_on_with_the_same_samples(launch, tmp_path, ranks):
    shards = str(coloured_shards(tmp_path / "s", 24, per_shard=24))  # one shard: fewer than workers of all ranks
    whole = launch(ranks, train_shards, shards=shards, run=str(tmp_path / "whole"))
    run = str(tmp_path / "killed")
    ended = launch.outcomes(ranks, train_shards, shards=shards, run=run, kills=True)
    assert all(outcome.exit_code != 0 for outcome in ended)
    again = launch(ranks, train_shards, shards=shards, run=run, resume=True)
    for one, other in zip(whole, again, strict=True):
        assert sorted(other["seen"]) == list(range(SAVED + 1, STEPS + 1))
        assert other["seen"] == {step: one["seen"][step] for step in other["seen"]}
        assert are_the_same_bits(one, other)
