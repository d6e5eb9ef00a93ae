"""Frozen weights over ranks: the first writes them once, and each takes them up again, or its part of them."""

from pathlib import Path

import pytest
import torch
from rank_training import are_the_same_bits, this_rank, train
from safetensors.torch import load_file
from torch import nn

import brim
from brim.engine.checkpoints.shared_files import checkpoint_damage
from brim.engine.checkpoints.weights import read_weights

WIDTH = 512


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1 + this_rank())  # all take the first one's
        self.encoder = nn.Sequential(nn.Linear(6, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)).requires_grad_(False)
        self.head = nn.Sequential(nn.Linear(WIDTH, 8), nn.Linear(8, 1))

    def forward(self, x):
        return self.head(self.encoder(x))


class Follows(brim.Callback):
    """Moves what is frozen, the same on every rank."""

    def on_epoch_end(self, trainer, epoch):
        if epoch == 2:
            trainer.model.encoder[2].weight.data.mul_(0.5)


def train_some(strategy, steps, folder, moves=False):
    found = train(
        model=Model(), strategy=strategy, max_steps=steps, run_dir=folder, resume="auto", optimizer="AdamW", lr=0.01,
        checkpoint_every=None if moves else 4, keep=20, callbacks=[Follows()] if moves else [],
    )  # fmt: skip
    found["files"] = sorted(str(path) for path in Path(found["run"]).glob("checkpoints/frozen/*"))
    found["whole"] = {
        path.name: (path / "model.safetensors").stat().st_size > WIDTH * WIDTH * 4
        for path in Path(found["run"]).glob("checkpoints/step-*")
    }
    return found


@pytest.mark.matrix(1)
# Shards are gathered for a save and not before: the second save is the first to know what has not moved.
@pytest.mark.parametrize(("strategy", "at_first"), [("ddp", [False, False]), ("fsdp", [True, False])])
def test_ranks_go_on_with_the_same_bits_from_a_base_that_is_written_once(launch, tmp_path, strategy, at_first):
    straight = launch(2, train_some, strategy=strategy, steps=16, folder=str(tmp_path / "straight"))
    launch(2, train_some, strategy=strategy, steps=8, folder=str(tmp_path / "run"))
    resumed = launch(2, train_some, strategy=strategy, steps=16, folder=str(tmp_path / "run"))
    for found, expected in zip(resumed, straight, strict=True):
        assert are_the_same_bits(found, expected)
        assert len(found["files"]) == 1
    sizes = [resumed[0]["whole"][f"step-{step:09d}"] for step in (4, 8, 12, 16)]
    assert sizes[:2] == at_first and not sizes[3]
    newest = tmp_path / "run" / "checkpoints" / "step-000000016"
    assert checkpoint_damage(newest) is None
    read = read_weights(newest / "model.safetensors")
    assert all(torch.equal(read[name], tensor) for name, tensor in resumed[0]["weights"].items())

    # What ranks have written, one process goes on from.
    (alone,) = launch(1, train_some, strategy="auto", steps=16, folder=str(tmp_path / "run"))
    assert are_the_same_bits(alone, resumed[0])


def test_what_moves_all_the_same_is_found_on_ranks(launch, tmp_path):
    folder = tmp_path / "run"
    first = launch(2, train_some, strategy="ddp", steps=39, folder=str(folder), moves=True)[0]
    assert first["whole"] == {"step-000000013": False, "step-000000026": True, "step-000000039": True}
    read = read_weights(folder / "checkpoints" / "step-000000039" / "model.safetensors")
    assert all(torch.equal(read[name], tensor) for name, tensor in first["weights"].items())
    assert "encoder.2.weight" in load_file(folder / "checkpoints" / "step-000000039" / "model.safetensors")
