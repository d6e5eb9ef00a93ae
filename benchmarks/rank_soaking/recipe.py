"""A small training over several ranks and what goes wrong in it, in plain values: the same in any process."""

from dataclasses import dataclass
from random import Random
from typing import Any

STRATEGIES = ("ddp", "fsdp")
STAGES = ("forward", "backward", "reduce", "evaluation")
MODELS = ("layers", "blocks", "tied", "tokens")
HAVE_BLOCKS = ("blocks", "tied")
FOR_EVER = 10**6
# Where in a stage. In the exchange: what ranks tell each other, or the gradients. Sharded weights are gathered, too.
PLACES = {
    "ddp": {"forward": ["model"], "backward": ["model"], "reduce": ["gradients", "word"], "evaluation": ["model"]},
    "fsdp": {
        "forward": ["model", "model", "gather"], "backward": ["model", "model", "gather"],
        "reduce": ["gradients", "gradients", "word"], "evaluation": ["model", "model", "gather"],
    },
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """Memory runs out on one rank, from a step (or evaluation) on, ``skip`` calls later, so many times.

    In the model it does so for slices of more than ``most`` samples; an exchange has no samples to speak of.
    """

    rank: int
    stage: str
    place: str
    at: int
    skip: int
    most: int
    times: int


@dataclass(frozen=True)
class Recipe:
    """``settings`` go to the Trainer as they are. The first fault is the one that the trial is about."""

    seed: int
    strategy: str
    world: int
    model: str
    optimizer: str
    samples: int
    batch_size: int
    drop_last: bool
    has_test_data: bool
    settings: dict[str, Any]
    faults: tuple[Fault, ...]

    @property
    def counts_add_up(self) -> bool:
        """Whether no rank computes a sample that does not count, as sharded ones do where shares are not equal."""
        has_tail = self.samples % self.batch_size and not self.drop_last
        return self.strategy == "ddp" or (not has_tail and self.batch_size % self.world == 0)


def random_recipe(random: Random, strategy: str, stage: str) -> Recipe:
    world = random.randint(2, 4)
    batch_size = random.choice([3 * world, 4 * world, 11, 13, 16, 24])  # odd ones among them: at least two for each
    batches = random.randint(5, 9)
    samples = batches * batch_size + random.choice([0, 1, 2, random.randrange(batch_size)])
    window = random.choice([1, 1, 2, 3])
    epochs = random.randint(1, 2) if window == 1 else 2
    micro_batch = random.choice(["auto", "auto", "auto", 2, 3])
    settings: dict[str, Any] = {
        "epochs": epochs,
        "gradient_accumulation_steps": window,
        "micro_batch": micro_batch,
        "clip_norm": random.choice([None, 0.5, 2.0]),
        "scheduler": random.choice([None, None, "cosine"]),
        "eval_every": random.choice([1, "1 steps", "2 steps"]),
        "checkpoint_every": random.choice([None, 2, 10**6]),
    }
    model = random.choice(MODELS)
    # What the trial is about must come to pass: in slices as large as they are at first, and before the end.
    most = min(2, batch_size // world - 1) if micro_batch == "auto" else 1
    steps = epochs * (batches // window)
    last = steps - 4  # as many as a fault may let pass, and a tail
    if stage == "evaluation":
        last = (epochs if settings["eval_every"] == 1 else steps // 2) - 1
    first = _fault(random, strategy, stage, world, model, most, last=max(0, min(7, last)))
    more = [
        _fault(random, strategy, random.choice(STAGES), world, model, most=2, first=first.at, last=9)
        for _ in range(random.choice([0, 0, 1, 2]))
    ]
    return Recipe(
        seed=random.randrange(10**6), strategy=strategy, world=world, model=model,
        optimizer=random.choice(["SGD with momentum", "AdamW"]), samples=samples, batch_size=batch_size,
        drop_last=random.random() < 0.2, has_test_data=random.random() < 0.3, settings=settings,
        faults=(first, *more),
    )  # fmt: skip


def _fault(
    random: Random, strategy: str, stage: str, world: int, model: str, most: int, last: int, first: int = 0
) -> Fault:  # fmt: skip
    """In the model, one sample always fits: otherwise a training may end, and should."""
    place = random.choice(PLACES[strategy][stage])
    if stage == "backward" and model not in HAVE_BLOCKS:  # nothing else is let go after the forward pass
        place = "model"
    return Fault(
        rank=random.randrange(world), stage=stage, place=place, at=random.randint(first, max(first, last)),
        skip=random.choice([0, 0, 1, 2]), most=random.randint(1, most),
        times=random.choice([1, 1, 2, FOR_EVER]) if place == "model" else 1,
    )  # fmt: skip
