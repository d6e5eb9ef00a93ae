"""The linear recommender, tuned: with ids alone, with texts, with random vectors."""

from collections.abc import Callable, Iterator
from dataclasses import asdict

import torch
from torch import Tensor

from brim.workloads.recommender.comparison.judge import Judge
from brim.workloads.recommender.comparison.rows import Row
from brim.workloads.recommender.comparison.settings import MODELS, ComparisonSettings
from brim.workloads.recommender.linear import LinearRecommender, LinearSettings

SAME = "; the same for every seed: nothing is drawn"


def solve(judge: Judge, name: str, settings: LinearSettings, seed: int, encodings: Tensor) -> LinearRecommender:
    """The model called ``name``; the seed draws random vectors, where it has any."""
    torch.manual_seed(seed)
    return LinearRecommender.of(
        judge.train, settings=settings, control=MODELS[name], encodings=encodings, device=judge.device
    )


def linear_rows(
    judge: Judge, settings: ComparisonSettings, encodings: Tensor, tell: Callable[[str], object]
) -> Iterator[Row]:
    """A row for each model and seed. The validation split chooses once for each model, with seed 0."""
    for name in settings.models:
        tried = []
        for number in range(settings.trials):
            tell(f"{name}: {number + 1} of {settings.trials} settings")
            trial = LinearSettings.drawn(number)
            tried.append((judge.choose_by(solve(judge, name, trial, 0, encodings)), trial))
        chosen = max(tried, key=lambda one: one[0])[1]
        is_drawn = MODELS[name] == "random"
        values: dict[str, Tensor] | None = None
        for seed in range(settings.seeds):
            if values is None or is_drawn:
                values = judge.slices(solve(judge, name, chosen, seed, encodings))
            yield Row.of(
                f"{name}, seed {seed}", values, f"{chosen}{'' if is_drawn else SAME}", chosen=asdict(chosen),
                tried=[{"validation": validation, **asdict(trial)} for validation, trial in tried],
            )  # fmt: skip
