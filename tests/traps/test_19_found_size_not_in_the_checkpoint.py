"""Trap 19: a resumed run searches for its micro-batch again, and so is another run."""

import torch
from torch import nn

import brim


def test_a_resumed_run_takes_the_size_that_was_found(net, data, weights, tmp_path):
    def train(model, run, epochs, **settings):
        brim.Trainer(
            model, brim.Loader(data(32), batch_size=8), loss_fn=nn.MSELoss(), device="cpu", threads=1, epochs=epochs,
            optimizer=torch.optim.AdamW, run_dir=tmp_path / run,
        ).fit(**settings)  # fmt: skip
        return model

    whole = train(net(limit=4, dropout=0.3), "whole", 2)
    train(net(limit=4, dropout=0.3), "parts", 1)
    resumed = train(net(dropout=0.3), "parts", 2, resume=tmp_path / "parts")  # there would be room for more
    assert torch.equal(weights(resumed), weights(whole))
