"""Trap 21: running out of memory in evaluation shrinks the training batch (transformers#32215)."""

from helpers.faults import ran_out
from torch import nn

import brim


class InEvaluation(nn.Module):
    def forward(self, x):
        if not self.training and len(x) > 3:
            raise ran_out()
        return x


def test_running_out_in_evaluation_does_not_shrink_training(data, tmp_path):
    sizes = []

    def loss(model, batch):
        if model.training:
            sizes.append(len(batch[0]))
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    model = nn.Sequential(nn.Linear(4, 1), InEvaluation())
    evaluation = brim.Loader(data(20, seed=1), batch_size=10)
    brim.Trainer(
        model, brim.Loader(data(32), batch_size=8), eval_data=evaluation, loss_fn=loss, device="cpu", threads=1,
        epochs=3, run_dir=tmp_path / "run",
    ).fit()  # fmt: skip
    assert sizes == [8] * 12
