"""The configuration of the classifier."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from pydantic import Field, field_validator

from brim.data.presets import preset_name
from brim.errors import ConfigError
from brim.workloads.classifier.model import DEEPEST, HIGHEST_RATE, WIDEST
from brim.workloads.classifier.pictures import check_augmentations
from brim.workloads.sections import EvalLoaderSection, LoaderSection, Section, TrainerSection

AUTO = "auto"
Value = TypeVar("Value")
Source = str | list[str]
# What this workload wants other than the trainer's own defaults.
TRAINER_DEFAULTS: dict[str, Any] = {"epochs": 10, "optimizer": "AdamW", "metrics": "accuracy"}


class DataSection(Section):
    """``data``: which shards, what in them is classified, and how it is decoded."""

    train: Source | None = Field(None, description="a folder of shards, a pattern with braces or wildcards, or a list")
    valid: Source | None = Field(None, description="the same, judged after each epoch")
    test: Source | None = Field(None, description="the same, judged once at the end")
    input: str | None = Field(None, description="the field that is classified; by its extension, unless given")
    label: str | None = Field(None, description="the field that holds the label: a number or a name; cls, unless given")
    label_key: str | None = Field(None, description="where in a json field the label is, with dots")
    classes: int | list[str] | None = Field(None, description="their number or names; those that occur, unless given")
    size: int = Field(64, ge=8, le=4096, description="pictures come out with so many pixels a side")
    channels: Literal[1, 3] = Field(3, description="of pictures: 3, or 1 for grey")
    sample_rate: int | None = Field(
        None, ge=100, le=HIGHEST_RATE, description="of sounds, a second; the first one's, unless given"
    )
    seconds: float = Field(1.0, gt=0, le=600, description="of a sound that are heard")
    augment: list[str] = Field(
        ["crop", "flip"], description="in training: crop, flip, RandAugment and others of torchvision"
    )
    on_damage: Literal["error", "skip"] = Field("error", description="a damaged sample ends the run, or is left out")

    @field_validator("classes")
    @classmethod
    def check_classes(cls, given: int | list[str] | None) -> int | list[str] | None:
        if isinstance(given, list) and len(set(given)) < len(given):
            raise ValueError("a class is named twice")
        if given is not None and (given if isinstance(given, int) else len(given)) < 2:
            raise ValueError("there must be two classes at least")
        return given

    @field_validator("augment")
    @classmethod
    def check_augment(cls, names: list[str]) -> list[str]:
        _said(lambda: check_augmentations(tuple(names)))
        return names


class ModelSection(Section):
    """``model``: a small convolutional network."""

    width: int = Field(32, ge=1, le=WIDEST, description="channels of the first stage")
    depth: int = Field(
        3, ge=1, le=DEEPEST, description="stages, each half as large and twice as wide as the one before"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="share of the last features left out in training")
    bands: int = Field(64, ge=8, le=WIDEST, description="of the spectrogram of sounds")


class TrainSection(LoaderSection):
    """``train_ds``: a preset by the card, and what is to be other than it."""

    preset: str | None = Field(
        AUTO,
        description="batch, workers and prefetch by the card's memory: auto, 8GB, default, 24GB, 48GB; null: measured",
    )

    @field_validator("preset")
    @classmethod
    def check_preset(cls, name: str | None) -> str | None:
        return name if name is None or name == AUTO else _said(lambda: preset_name(name))

    @property
    def asked(self) -> dict[str, Any]:
        """The settings of the loader that have a value."""
        return {name: value for name, value in super().asked.items() if name != "preset"}


class ClassifierConfig(Section):
    """Everything that decides a run of the classifier."""

    workload: Literal["classifier"] = "classifier"
    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    train_ds: TrainSection = TrainSection()
    valid_ds: EvalLoaderSection = EvalLoaderSection()
    test_ds: EvalLoaderSection = EvalLoaderSection()
    trainer: TrainerSection = Field(default_factory=lambda: TrainerSection(**TRAINER_DEFAULTS))  # type: ignore[valid-type]


def _said(check: Callable[[], Value]) -> Value:
    """What ``check`` gives; what it refuses, as the one kind of error that pydantic knows."""
    try:
        return check()
    except ConfigError as error:
        raise ValueError(str(error)) from error
