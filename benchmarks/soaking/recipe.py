"""A small training in plain values: the same recipe is the same training, in any process."""

from dataclasses import dataclass
from random import Random
from typing import Any

from soaking.feeds import FEEDS
from soaking.models import MODELS
from soaking.optimizers import OPTIMIZERS, SCHEDULERS


@dataclass(frozen=True)
class Recipe:
    """Names are those of the tables in models, feeds and optimizers; ``settings`` go to the Trainer as they are."""

    seed: int
    model: str
    dropout: float
    feed: str
    samples: int
    batch_size: int
    drop_last: bool
    workers: int
    optimizer: str
    scheduler: str
    evaluates: bool
    settings: dict[str, Any]
    bad_sample: int | None = None
    bad_target: str = "nan"  # what that sample has for a target

    @property
    def can_be_sliced(self) -> bool:
        """Whether slices compute the same up to rounding: they draw other dropout, and have their own BatchNorm."""
        return self.dropout == 0 and self.model != "batch norm" and self.settings["precision"] == "32"


def random_recipe(random: Random, **fixed: Any) -> Recipe:
    """Any training that is valid; ``fixed`` are fields or settings that are not left to chance."""
    feed = fixed.get("feed") or random.choice(list(FEEDS))
    model = fixed.get("model") or random.choice(list(MODELS))
    evaluates = fixed.get("evaluates", random.random() < 0.4)
    schedulers = [name for name in SCHEDULERS if evaluates or name != "plateau"]
    samples, batch_size = random.randrange(20, 90), random.choice([1, 3, 4, 7, 8, 16, 100])
    batch_size = fixed.get("batch_size") or max(batch_size, samples // 12)  # an epoch of a dozen steps at most
    values: dict[str, Any] = {
        "seed": random.randrange(1000),
        "model": model,
        "dropout": random.choice([0.0, 0.0, 0.2]),
        "feed": feed,
        "samples": samples,
        "batch_size": batch_size,
        "drop_last": random.random() < 0.3 and batch_size <= samples,
        "workers": random.choice([1, 2]) if feed == "workers" else random.choice([0, 0, 0, 1, 2]),
        "optimizer": random.choice(list(OPTIMIZERS)),
        "scheduler": random.choice(schedulers),
        "evaluates": evaluates,
    }
    settings = _random_settings(random, feed, evaluates)
    if model == "batch norm":  # has no statistics of a single sample
        batch_size = max(batch_size, 4)
        values |= {"batch_size": batch_size, "samples": max(1, samples // batch_size) * batch_size}
        settings["micro_batch"] = random.choice(["auto", batch_size // 2]) if batch_size % 2 == 0 else "auto"
    settings |= {name: value for name, value in fixed.items() if name in settings}
    values |= {name: value for name, value in fixed.items() if name not in settings}
    return Recipe(**values, settings=settings)


def _random_settings(random: Random, feed: str, evaluates: bool) -> dict[str, Any]:
    return {
        "epochs": random.randrange(1, 4),
        # Decides instead of epochs, and lets a run end within one. A stream needs it: nobody knows how long that is.
        "max_steps": random.randrange(5, 25) if feed == "stream" or random.random() < 0.5 else None,
        "gradient_accumulation_steps": random.choice([1, 1, 2, 3]),
        "micro_batch": random.choice(["auto", "auto", 1, 3, 5]),
        "clip_norm": random.choice([None, None, 0.1, 1.0]),
        "precision": random.choice(["32", "32", "bf16-mixed"]),
        "seed": random.randrange(5),
        "lr": random.choice([1e-3, 1e-2]),
        "eval_every": random.choice([1, 2, "1 step", "4 steps"]),
        "patience": random.choice([None, None, 1]) if evaluates else None,
        "checkpoint_every": random.choice([None, 1, 2, 3, 5]),
        "keep": random.choice([1, 2, 3]),
        "log_every": random.choice([1, 3, 50]),
        "on_nan": "stop",
    }
