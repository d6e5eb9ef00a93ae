"""Trap 11: counters and schedules advance for steps that did not happen, or a batch is skipped or repeated."""

import torch
from torch import nn

import brim
from brim.engine.trainer import run_now


def test_counters_advance_once_for_every_step_that_happened(net, data, tmp_path):
    model, steps = net(at=(1, 2, 9)), []

    class Watch(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            (state,) = {int(s["step"]) for s in trainer.optimizer.state.values()}
            steps.append((step, run_now(trainer).state.progress.position, state, trainer.scheduler.last_epoch))

    brim.Trainer(
        model, brim.Loader(data(32), batch_size=8), loss_fn=nn.MSELoss(), device="cpu", threads=1, scheduler="cosine",
        optimizer=torch.optim.AdamW, callbacks=[Watch()], run_dir=tmp_path / "run",
    ).fit()  # fmt: skip
    assert steps == [(n, 8 * n, n, n) for n in (1, 2, 3, 4)]
