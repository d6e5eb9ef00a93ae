"""Trap 10: smaller slices are taken for a smaller batch, and the learning rate or the schedule moves with them."""

import torch
from torch import nn

import brim


def test_the_learning_rate_does_not_follow_the_slices(net, data, tmp_path):
    class Watch(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            rates.append(trainer.optimizer.param_groups[0]["lr"])

    seen = []
    for name, model in (("whole", net()), ("sliced", net(limit=1))):
        rates = []
        brim.Trainer(
            model, brim.Loader(data(32), batch_size=8), loss_fn=nn.MSELoss(), device="cpu", threads=1,
            scheduler="linear", optimizer=lambda p: torch.optim.SGD(p, lr=1.0), callbacks=[Watch()],
            run_dir=tmp_path / name,
        ).fit()  # fmt: skip
        seen.append(rates)
    assert seen[0] == seen[1] == [0.75, 0.5, 0.25, 0.0]
