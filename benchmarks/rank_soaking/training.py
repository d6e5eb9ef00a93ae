"""The training of a recipe, as one rank makes it, and what every rank must come to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import brim
from rank_soaking.mischief import Mischief
from rank_soaking.models import KINDS, LOSSES, make_data
from rank_soaking.recipe import Recipe

EVALUATED, TESTED = 37, 29  # samples


@dataclass(frozen=True)
class Trained:
    """Everything that must depend neither on the number of ranks nor on what went wrong."""

    weights: dict[str, Tensor]
    seen: int  # samples that this rank's model has counted in training
    steps: int
    losses: list[float]  # of every step
    evaluations: list[float]
    metrics: dict[str, float]


class Watch(brim.Callback):
    """Keeps the numbers, and tells the mischief where the training is."""

    def __init__(self, mischief: Mischief) -> None:
        self.mischief = mischief
        self.losses: dict[int, float] = {}  # a step that is made again counts once
        self.evaluations: list[float] = []

    def on_step_end(self, trainer: brim.Trainer, step: int, loss: Tensor) -> None:
        self.losses[step] = loss.item()
        self.mischief.step = step

    def on_evaluate(self, trainer: brim.Trainer, metrics: dict[str, float]) -> None:
        self.evaluations.append(metrics["loss"])
        self.mischief.evaluations += 1


def train(recipe: Recipe, mischief: Mischief, rank: int, world: int, folder: Path) -> Trained:
    torch.manual_seed(recipe.seed + rank)  # other weights on every rank: all have to take the first one's
    model = KINDS[recipe.model](mischief.weak_layer)
    columns = make_data(recipe.model, recipe.samples + EVALUATED + TESTED, recipe.seed)
    trained, evaluated, tested = (
        tuple(column[first:last] for column in columns)
        for first, last in ((TESTED + EVALUATED, None), (TESTED, TESTED + EVALUATED), (0, TESTED))
    )
    watch = Watch(mischief)
    trainer = brim.Trainer(
        model, brim.Loader(trained, recipe.batch_size, drop_last=recipe.drop_last),
        brim.Loader(evaluated, 3 * recipe.world + 1), brim.Loader(tested, 10) if recipe.has_test_data else None,
        loss_fn=LOSSES[recipe.model](), optimizer=lambda parameters: make_optimizer(recipe.optimizer, parameters),
        strategy=recipe.strategy if world > 1 else "auto", seed=recipe.seed, device="cpu", threads=1, log_every=3,
        run_dir=folder / ("run" if world > 1 else "undisturbed"), callbacks=[watch], **recipe.settings,
    )  # fmt: skip
    result = trainer.fit()
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    losses = [loss for _, loss in sorted(watch.losses.items())]
    return Trained(weights, mischief.seen, result.steps, losses, watch.evaluations, result.metrics)


def make_optimizer(name: str, parameters: Any) -> torch.optim.Optimizer:
    if name == "AdamW":
        return torch.optim.AdamW(parameters, lr=3e-3)
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)
