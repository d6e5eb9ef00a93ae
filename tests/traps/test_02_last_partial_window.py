"""Trap 2: the last window of an epoch holds fewer batches, and the last batch fewer samples."""

import torch
from torch import nn

import brim


def test_the_last_partial_window_is_scaled_by_what_is_really_in_it(net, data, weights, tmp_path):
    trained = []
    for name, model, batch_size, accumulation in (("whole", net(), 12, 1), ("windows", net(limit=3), 4, 3)):
        brim.Trainer(
            model, brim.Loader(data(29), batch_size=batch_size, shuffle=False), loss_fn=nn.MSELoss(), device="cpu",
            optimizer=lambda p: torch.optim.SGD(p, lr=0.1), gradient_accumulation_steps=accumulation, threads=1,
            run_dir=tmp_path / name,
        ).fit()  # fmt: skip
        trained.append(weights(model))
    assert (trained[0] - trained[1]).norm() <= 1e-6 * trained[0].norm()
