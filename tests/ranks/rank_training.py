"""What the tests of this folder share: a small training, and what is compared of it."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from warm_process import free_port

import brim

ROUNDING = 1e-5
SAMPLES = 195  # in batches of 16: twelve, and one of three, which is less than a sample for each of four ranks
EPOCH = 13  # steps
_generator = torch.Generator().manual_seed(0)
X = torch.randn(SAMPLES, 6, generator=_generator)
Y = X.sin().sum(1, keepdim=True) + 0.1 * torch.randn(SAMPLES, 1, generator=_generator)
CLASSES = torch.randint(5, (SAMPLES,), generator=_generator)


def this_rank() -> int:
    return int(os.environ.get("RANK", "0"))


def alone_of_one() -> dict[str, str]:
    """What torchrun would say to one rank, started as such: it forms a process group, over NCCL on a GPU."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", **place}


def net(*middle: nn.Module, outputs: int = 1) -> nn.Module:
    """Other weights on every rank: all have to take the first one's."""
    torch.manual_seed(1 + this_rank())
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), *middle, nn.Linear(16, outputs))


class Tokens(nn.Module):
    """Samples of different lengths: what counts is tokens, of which each rank has another number."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def calculate_loss(self, batch):
        x, y, lengths = batch
        errors = (self.net(x) - y).square().squeeze(1) * lengths
        return brim.Loss(errors.sum(), lengths.sum())


class Branches(nn.Module):
    """One part computes samples of one kind only, and another none at all."""

    def __init__(self):
        super().__init__()
        self.net = net()
        self.rare, self.unused = nn.Linear(6, 1), nn.Linear(6, 1)

    def calculate_loss(self, batch):
        x, y = batch
        total = (self.net(x) - y).square().sum()
        chosen = x[:, 0] > 1.2
        if chosen.any():
            total = total + (self.rare(x[chosen]) - y[chosen]).square().sum()
        return brim.Loss(total, len(x))


def columns(batch_size: int = 16, **settings: Any) -> brim.Loader:
    return brim.Loader((X, Y), batch_size, **settings)


class Losses(brim.Callback):
    """Every loss as the trainer hands it over."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_step_end(self, trainer: brim.Trainer, step: int, loss: Tensor) -> None:
        self.values.append(loss.item())


def train(
    data: Any = None, model: nn.Module | None = None, resume: str | None = None,
    callbacks: Sequence[brim.Callback] = (), **settings: Any,
) -> dict[str, Any]:  # fmt: skip
    """Train, and hand over everything that must not depend on the number of ranks."""
    losses = Losses()
    model = net() if model is None else model
    trainer = brim.Trainer(
        model, columns() if data is None else data, callbacks=[losses, *callbacks],
        **{
            "loss_fn": nn.MSELoss(), "optimizer": sgd, "device": "cpu", "threads": 1, "max_steps": 2 * EPOCH,
            "run_dir": "run", "checkpoint_every": 1_000_000, "log_every": 10, **settings,
        },
    )  # fmt: skip
    result = trainer.fit(resume=resume)
    return {
        "weights": {n: t.clone() for n, t in model.state_dict().items() if isinstance(t, Tensor)},
        "losses": losses.values,
        "steps": result.steps,
        "ended": result.ended,
        "metrics": result.metrics,
        "run": str(Path(result.run).resolve()),
    }


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.02)


def difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The norm-relative difference over all weights."""
    mine, theirs = _numbers(one["weights"]), _numbers(other["weights"])
    return float((mine - theirs).norm() / theirs.norm())


def are_the_same_bits(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(torch.equal(tensor, other["weights"][name]) for name, tensor in one["weights"].items())


def _numbers(weights: dict[str, Tensor]) -> Tensor:
    return torch.cat([w.double().flatten() for w in weights.values() if w.is_floating_point()])


def logged_losses(run: str | Path) -> list[float]:
    lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]
