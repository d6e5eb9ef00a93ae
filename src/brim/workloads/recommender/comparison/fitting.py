"""The models that are compared, trained and tuned."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from brim.engine import Callback, Trainer
from brim.workloads.quiet import quietly
from brim.workloads.recommender.baselines import EASE
from brim.workloads.recommender.comparison.judge import Judge
from brim.workloads.recommender.comparison.settings import MODELS, ComparisonSettings
from brim.workloads.recommender.history import HistoryLoader, HistoryRecommender

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
