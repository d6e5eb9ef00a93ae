"""How models are compared: which, how often, and with which settings they are trained."""

from dataclasses import dataclass, fields, replace
from typing import Any

from brim.errors import ConfigError

MODELS: dict[str, str | None] = {"ids": "ids", "text + ids": None, "random + ids": "random"}
"""Names in tables, and what each is to :class:`HistoryRecommender` as ``control``."""
PARTS = ("warm", "cold")
KINDS = ("history", "linear")


@dataclass(frozen=True)
class ComparisonSettings:
    """All models have the same settings; the validation split chooses for each of them, from equally many.

    Args:
        models: names of ``MODELS``.
        kind: ``"history"``, trained, its temperature is chosen; ``"linear"``, solved, its :class:`LinearSettings` are.
        trials: of linear: how many settings to choose from, the same for every model.
        parts: ``"warm"`` for items with ratings, ``"cold"`` for a tenth that is held out of training.
        seeds: how often each model is trained, from seed 0 on.
        temperatures: to choose from.
        cold_temperature: of the models that rank held-out items.
        epochs: at most.
        patience: evaluations without a better one before a training ends.
        lr: learning rate of Adam.
        embed_dim: width of vectors.
        people: in a batch.
        hidden: share of a history that is to be guessed.
        device: where models are trained and ranked.
        threads: of the CPU; another number rounds differently.
    """

    models: tuple[str, ...] = tuple(MODELS)
    kind: str = "history"
    trials: int = 8
    parts: tuple[str, ...] = PARTS
    seeds: int = 3
    temperatures: tuple[float, ...] = (5.0, 6.0, 7.0)
    cold_temperature: float = 6.0
    epochs: int = 100
    patience: int = 5
    lr: float = 1.5e-3
    embed_dim: int = 192
    people: int = 256
    hidden: float = 0.6
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        unknown = [name for name in self.models if name not in MODELS]
        if unknown or not self.models:
            raise ConfigError(f"models={list(self.models)} must be some of {', '.join(map(repr, MODELS))}")
        if self.kind not in KINDS:
            raise ConfigError(f"kind={self.kind!r} must be one of {', '.join(map(repr, KINDS))}")
        for name in ("trials", "seeds", "epochs", "people", "embed_dim"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if not self.temperatures or min(self.temperatures) <= 0:
            raise ConfigError(f"temperatures={list(self.temperatures)} must be numbers above 0")

    def quick(self) -> "ComparisonSettings":
        """A first look: one seed, one temperature or trial and few epochs; nothing to be quoted."""
        return replace(self, seeds=1, trials=1, temperatures=(self.cold_temperature,), epochs=min(4, self.epochs))

    def as_json(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
