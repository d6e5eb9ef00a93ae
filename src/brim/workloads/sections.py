"""The sections of a configuration file that every workload shares."""

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, create_model, field_validator, model_validator

from brim.data.batches.prefetch import AHEAD
from brim.engine import Trainer
from brim.engine.calling.memory_format import lay_out
from brim.engine.components.optimizer import optimizer_maker
from brim.engine.components.settings import TrainerSettings
from brim.memory.planning.estimates import ModelWithLoss

# Arguments of the trainer that no file can hold.
IN_CODE = ("model", "train_data", "eval_data", "test_data", "loss_fn", "callbacks")
FOR_WORKERS = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor")


class Section(BaseModel):
    """A part of the configuration: unknown keys are refused, and numbers may stand where a text is meant (16, 32)."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True, protected_namespaces=())

    @field_validator("*", mode="before")
    @classmethod
    def refuse_truth_values_as_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """pydantic would read true as 1."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and bool not in (annotation, *typing.get_args(annotation)):
            raise ValueError("true and false are not values of this setting")
        return value


class TrainSection(Section):
    """``train_ds``: how training samples are batched and loaded."""

    batch_size: int = Field(2048, ge=1, description="samples of a batch, over all GPUs")
    shuffle: bool = Field(True, description="another order of samples in each epoch")
    drop_last: bool = Field(False, description="leave out the last, smaller batch of an epoch")
    num_workers: int = Field(0, ge=0, description="loader processes, where samples are loaded one by one")
    pin_memory: bool = Field(False, description="page-locked batches, where there is a GPU")
    persistent_workers: bool = Field(False, description="keep workers between epochs")
    prefetch_factor: int | None = Field(None, ge=1, description="batches that each worker prepares ahead")


class LoaderSection(Section):
    """``train_ds`` of your own data: what is left empty is as the data, or :class:`brim.Loader`, has it."""

    batch_size: int | None = Field(None, ge=1, description="samples of a batch, over all GPUs")
    shuffle: bool | None = Field(None, description="another order of samples in each epoch")
    drop_last: bool | None = Field(None, description="leave out the last, smaller batch of an epoch")
    num_workers: int | str | None = Field(None, description="loader processes; auto: as many as help")
    pin_memory: bool | None = Field(None, description="page-locked batches, where there is a GPU")
    persistent_workers: bool | None = Field(None, description="keep workers between epochs")
    prefetch_factor: int | None = Field(None, ge=1, description="batches that each worker prepares ahead")

    @field_validator("num_workers")
    @classmethod
    def check_workers(cls, value: int | str | None) -> int | str | None:
        if (isinstance(value, str) and value != "auto") or (isinstance(value, int) and value < 0):
            raise ValueError("write a number of processes, 0 for none, or auto")
        return value

    @property
    def asked(self) -> dict[str, Any]:
        """The settings that have a value."""
        return {name: value for name, value in self.model_dump().items() if value is not None}


class EvalLoaderSection(LoaderSection):
    """``valid_ds`` and ``test_ds``: the same, but evaluation reads every sample once and in order."""

    @field_validator("shuffle", "drop_last")
    @classmethod
    def refuse_another_order(cls, value: bool | None) -> bool | None:
        if value:
            raise ValueError("evaluation reads every sample once, in order; leave it out")
        return value


class EvalSection(Section):
    """``eval_ds``: how evaluation ranks."""

    batch_size: int = Field(2048, ge=1, description="users that are ranked at once")
    k: list[Annotated[int, Field(ge=1)]] = Field([10, 20], min_length=1, description="cut-offs of the metrics")


def _trainer_section() -> type[Section]:
    """``trainer``: the keyword arguments of :class:`brim.Trainer` that can be written in a file, with its defaults.

    Taken from its signature, so that the two cannot drift apart.
    """
    types = typing.get_type_hints(Trainer.__init__)
    in_files = {
        "optimizer": str | dict[str, Any] | None,
        "scheduler": str | dict[str, Any] | None,
        "device": str,
        "precision": str,
        "run_dir": str | None,
        "metrics": str | list[str] | None,
        "loggers": str | list[str] | bool | None,
    }
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(Trainer.__init__).parameters.items():
        if name != "self" and name not in IN_CODE:
            fields[name] = (in_files.get(name, types[name]), parameter.default)
    return create_model("TrainerSection", __base__=_CaptureOff, **fields)


class _CaptureOff(Section):
    """YAML reads the bare word off as false, and ``capture: off`` is how everybody writes it."""

    @model_validator(mode="before")
    @classmethod
    def read_off(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("capture") is False:
            return {**values, "capture": "off"}
        return values


TrainerSection = _trainer_section()


def check_trainer_section(section: BaseModel) -> None:
    """Apply the trainer's own rules, so that a bad setting is refused before any data is read."""
    TrainerSettings(**section.model_dump()).check()


def plan_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What `brim.plan` is told of a trainer's settings; the model that it traces returns the loss itself."""
    return {
        "optimizer": optimizer_maker(settings["optimizer"], settings["lr"]),
        "precision": settings["precision"],
        "clip_norm": settings["clip_norm"],
        "sliceable": settings["sliceable"],
        "accumulation": settings["accumulate_grad_batches"] or settings["gradient_accumulation_steps"],
        "micro_batch": None if settings["micro_batch"] == "auto" else settings["micro_batch"],
        "prefetched": AHEAD,
        "ema": settings["ema"],
        "logits": settings["logits"],
        "checkpointing": settings["checkpointing"],
    }


def _own_loss(model: Any, batch: Any) -> Any:
    return model.calculate_loss(batch)


def job_of(
    model: Any, batch_size: int, trainer: BaseModel, loss: Callable[[Any, Any], Any] = _own_loss
) -> dict[str, Any]:
    """The arguments of `brim.plan` for one of brim's models, which makes its example batches by itself."""
    settings = trainer.model_dump()
    lay_out(model, settings["memory_format"])
    return {
        "model": ModelWithLoss(model, loss),
        "batch": lambda n: ((model.example_batch(n),), {}),
        "batch_size": batch_size,
        **plan_arguments(settings),
    }


def without_effect(config: BaseModel, why: str) -> list[str]:
    """A sentence for each section that asks for loader processes, where there is nothing for them to read."""
    sentences = []
    for place in ("train_ds", "valid_ds", "test_ds"):
        section = getattr(config, place)
        idle = [f"{place}.{name}" for name in FOR_WORKERS if getattr(section, name) not in (None, False, 0, "auto")]
        if idle:
            sentences.append(f"{', '.join(idle)} cannot act: {why}")
    return sentences


def trainer_arguments(section: BaseModel) -> dict[str, Any]:
    """The section as keyword arguments."""
    arguments = section.model_dump()
    if arguments["run_dir"] is not None:
        arguments["run_dir"] = Path(arguments["run_dir"])
    return arguments


def show_config(config: BaseModel, without: Collection[str] = ()) -> str:
    """The configuration as YAML, every default included; reading it back gives the same configuration.

    ``without`` names settings of the trainer that are left out, because code of the user's decides them.
    """
    values = config.model_dump()
    values["trainer"] = {name: value for name, value in values["trainer"].items() if name not in without}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
