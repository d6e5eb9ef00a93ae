"""The models that are compared, trained and tuned."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from brim.engine import Callback, Trainer
from brim.workloads.quiet import quietly
from brim.workloads.recommender.baselines import EASE
from brim.workloads.recommender.comparison.judge import Judge
from brim.workloads.recommender.comparison.rows import Row
from brim.workloads.recommender.comparison.settings import MODELS, ComparisonSettings
from brim.workloads.recommender.history import HistoryLoader, HistoryRecommender
from brim.workloads.recommender.linear import LinearRecommender, LinearSettings

SAME = "; the same for every seed: nothing is drawn"
EASE_REGULARISATIONS = (250.0, 500.0, 1000.0)
Tell = Callable[[str], object]


@dataclass(frozen=True)
class Fitted:
    """A model with its best weights: how well it ranks the validation split, and after how many epochs it ended."""

    model: HistoryRecommender
    validation: float
    epochs: int


class _TellEpochs(Callback):
    def __init__(self, what: str, epochs: int, tell: Tell) -> None:
        self.what, self.epochs, self.tell = what, epochs, tell

    def on_epoch_end(self, trainer: Trainer, epoch: int) -> None:
        self.tell(f"{self.what}: epoch {epoch} of at most {self.epochs}")


def fit(
    judge: Judge, name: str, temperature: float, seed: int, settings: ComparisonSettings, encodings: Tensor, tell: Tell
) -> Fitted:
    """Train the model called ``name`` until the validation split is ranked no better."""
    torch.manual_seed(seed)
    model = HistoryRecommender.of(
        judge.train, embed_dim=settings.embed_dim, temperature=temperature, control=MODELS[name], encodings=encodings
    )
    loader = HistoryLoader(judge.train, settings.people, settings.hidden, device=settings.device)
    told = _TellEpochs(f"{name}, seed {seed}, temperature {temperature:g}", settings.epochs, tell)
    with tempfile.TemporaryDirectory() as folder, quietly():
        trainer = Trainer(
            model, loader, judge.validation, optimizer="Adam", lr=settings.lr, epochs=settings.epochs,
            patience=settings.patience, seed=seed, device=settings.device, threads=settings.threads,
            run_dir=Path(folder) / "run", callbacks=[told],
        )  # fmt: skip
        result = trainer.fit()
    return Fitted(model, judge.choose_by(model), result.epochs)


def tuned_ease(judge: Judge) -> tuple[EASE, float]:
    """EASE with the regularisation that ranks the validation split best, and that number."""
    scored = [(judge.choose_by(EASE(judge.train, value)), value) for value in EASE_REGULARISATIONS]
    best = max(scored)[1]
    return EASE(judge.train, best), best


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
