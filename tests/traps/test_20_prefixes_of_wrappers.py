"""Trap 20: wrappers put prefixes before the names of weights, and other programs cannot load them."""

import torch
from torch import nn

import brim


class Names(brim.Callback):
    """Names of weights while blocks are computed again."""

    def on_step_end(self, trainer, step, loss):
        assert "forward" in vars(trainer.model[0][0])
        assert list(trainer.model.state_dict()) == [
            "0.0.0.weight",
            "0.0.0.bias",
            "0.1.0.weight",
            "0.1.0.bias",
            "1.weight",
            "1.bias",
        ]


def test_checkpointed_blocks_keep_the_names_of_their_weights(data, tmp_path):
    def build():
        return nn.Sequential(
            nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))), nn.Linear(4, 1)
        )

    model, plain = build(), build()
    settings = {"loss_fn": nn.MSELoss(), "device": "cpu", "checkpointing": True, "run_dir": tmp_path / "run"}
    run = brim.Trainer(model, data(), callbacks=[Names()], **settings)
    run.fit(save_model=True, model_path=tmp_path / "model.pth")
    plain.load_state_dict(torch.load(tmp_path / "model.pth", weights_only=True))
