"""The configuration of the recommender."""

from typing import Any, Literal

from pydantic import Field, field_validator

from brim.config.sections import EvalSection, Section, TrainerSection, TrainSection
from brim.workloads.recommender.interactions import check_split_ratio


class DataSection(Section):
    """``data``: which interactions to train on."""

    name: Literal["embedded"] = Field("embedded", description="the data set that brim makes itself")
    n_users: int = Field(2000, ge=1, le=100_000, description="people in the embedded data set")
    n_items: int = Field(1200, ge=30, le=10_000, description="movies in the embedded data set")
    split_ratio: list[float] = Field([0.8, 0.1, 0.1], description="shares of train, validation and test of each user")
    seed: int = Field(0, ge=0, lt=2**63, description="seed of the embedded data set and of the split")

    @field_validator("split_ratio")
    @classmethod
    def check_shares(cls, ratio: list[float]) -> list[float]:
        check_split_ratio(ratio)
        return ratio


class ModelSection(Section):
    """``model``: what is trained."""

    name: Literal["bpr"] = Field("bpr", description="matrix factorisation with the BPR loss")
    embed_dim: int = Field(64, ge=1, le=65_536, description="width of the embeddings")


class RecommenderConfig(Section):
    """Everything that decides a run of the recommender."""

    workload: Literal["recommender"] = "recommender"
    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    train_ds: TrainSection = TrainSection()
    eval_ds: EvalSection = EvalSection()
    trainer: TrainerSection = Field(default_factory=lambda: TrainerSection(**TRAINER_DEFAULTS))  # type: ignore[valid-type]


# What this workload wants other than the trainer's own defaults.
TRAINER_DEFAULTS: dict[str, Any] = {"epochs": 40, "lr": 5e-3, "patience": 5}
