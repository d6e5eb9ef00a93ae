"""Carrying out a recipe in this process."""

import json
import math
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import nn

import brim
from brim.errors import BrimError, Interrupted
from soaking.feeds import OnSample, evaluation_data, make_feed
from soaking.mischief import Counters, Mischief
from soaking.models import make_model
from soaking.optimizers import OPTIMIZERS, SCHEDULERS
from soaking.recipe import Recipe

RUN = "run"
TRAINED = "model.safetensors"
COUNTS = "counts.json"
NOT_THE_BEST = 70  # an exit code of ours: the model is not the one that the result is about


@dataclass(frozen=True)
class Counts:
    """How many moments of each kind a training has, from its start to its end."""

    forwards: int
    files: int
    steps: int


def make_trainer(recipe: Recipe, run: Path, on_sample: OnSample | None = None) -> brim.Trainer:
    model = make_model(recipe.model, recipe.dropout, recipe.seed)
    return brim.Trainer(
        model,
        make_feed(recipe, on_sample),
        evaluation_data(recipe) if recipe.evaluates else None,
        loss_fn=None if hasattr(model, "calculate_loss") else nn.MSELoss(),
        optimizer=OPTIMIZERS[recipe.optimizer],
        scheduler=SCHEDULERS[recipe.scheduler],
        device="cpu",
        threads=1,
        run_dir=run,
        **recipe.settings,
    )


def train(recipe: Recipe, folder: Path, mischief: Mischief | None = None) -> int:
    """Train, or go on with what is in ``folder``; the exit code, as the command line would end."""
    os.environ["BRIM_CACHE"] = str(folder / "cache")
    mischief = mischief or Mischief()
    mischief.before()
    trainer = make_trainer(recipe, folder / RUN, mischief.on_sample)
    counters = Counters(mischief, trainer, folder)
    try:
        result = trainer.fit(resume="auto", save_model=True, model_path=folder / TRAINED)
    except (BrimError, Interrupted) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    counts = Counts(counters.forwards, counters.files, counters.steps)
    (folder / COUNTS).write_text(json.dumps(asdict(counts)))
    if recipe.evaluates and not math.isclose(found := trainer.evaluate()["loss"], result.metrics["loss"], rel_tol=1e-6):
        print(f"the result has loss {result.metrics['loss']}, the model {found}", file=sys.stderr)
        return NOT_THE_BEST
    return 0


def counts_of(folder: Path) -> Counts:
    return Counts(**json.loads((folder / COUNTS).read_text()))
