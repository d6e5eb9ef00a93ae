"""Trap 20: wrappers put prefixes before the names of weights, and other programs cannot load them."""

import torch
from torch import nn

import brim


def test_checkpointed_blocks_keep_the_names_of_their_weights(data, tmp_path):
    def build():
        return nn.Sequential(
            nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))), nn.Linear(4, 1)
        )

    model, plain = build(), build()
    run = brim.Trainer(model, data(), loss_fn=nn.MSELoss(), device="cpu", checkpointing=True, run_dir=tmp_path / "run")
    run.fit(save_model=True, model_path=tmp_path / "model.pth")
    assert "forward" in vars(model[0][0])
    plain.load_state_dict(torch.load(tmp_path / "model.pth", weights_only=True))
