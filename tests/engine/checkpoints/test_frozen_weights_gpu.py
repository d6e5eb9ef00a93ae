"""Frozen weights on a GPU, where they are compared without a copy on the host."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import brim
from brim.engine.checkpoints.weights import read_weights

pytestmark = pytest.mark.gpu

X = torch.randn(24, 512, generator=torch.Generator().manual_seed(3))


def make_model(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512), nn.Linear(512, 1))
    model[:3].requires_grad_(False)
    return model


class Edits(brim.Callback):
    """One number, as no version counts it, at the end of epoch 2."""

    def on_epoch_end(self, trainer, epoch):
        if epoch == 2:
            trainer.model[0].weight.data[100, 100] += 1


def train(folder, model, epochs, callbacks=(), **settings):
    trainer = brim.Trainer(
        model, brim.Loader((X, X[:, :1]), 8), loss_fn=nn.MSELoss(), run_dir=folder, epochs=epochs, keep=10,
        optimizer="AdamW", lr=0.01, deterministic=True, callbacks=callbacks, **settings,
    )  # fmt: skip
    trainer.fit(resume="auto")
    return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("ema", [None, 0.9])
def test_a_frozen_encoder_is_written_once_and_a_resumed_run_has_the_same_bits(tmp_path, ema):
    straight = train(tmp_path / "straight", make_model(), 4, ema=ema)
    train(tmp_path / "run", make_model(), 2, ema=ema)
    resumed = train(tmp_path / "run", make_model(seed=5), 4, ema=ema)
    assert same(resumed, straight)
    assert len(list((tmp_path / "run" / "checkpoints" / "frozen").iterdir())) == 1
    for path in (tmp_path / "run" / "checkpoints").glob("step-*"):
        assert load_file(path / "model.safetensors").keys() == {"3.weight", "3.bias"}


def test_one_number_that_moves_is_found(tmp_path):
    left = train(tmp_path / "run", make_model(), 3, [Edits()])
    written = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))
    names = [load_file(path / "model.safetensors").keys() for path in written]
    assert names == [{"3.weight", "3.bias"}, {"0.weight", "3.weight", "3.bias"}, {"0.weight", "3.weight", "3.bias"}]
    assert same(read_weights(written[-1] / "model.safetensors"), left)
