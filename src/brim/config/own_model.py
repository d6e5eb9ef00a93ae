"""The configuration of a training that the user's own code describes."""

from typing import Any

from pydantic import Field, field_validator

from brim.config.workload_code import WorkloadCode
from brim.workloads.sections import EvalLoaderSection, LoaderSection, Section, TrainerSection


class OwnModelConfig(Section):
    """Everything that decides a run of ``workload: train.py:build``."""

    workload: str
    params: dict[str, Any] = Field({}, description="arguments of that function")
    train_ds: LoaderSection = LoaderSection()
    valid_ds: EvalLoaderSection = EvalLoaderSection()
    test_ds: EvalLoaderSection = EvalLoaderSection()
    trainer: TrainerSection = Field(default_factory=TrainerSection)  # type: ignore[valid-type]

    @field_validator("workload")
    @classmethod
    def check_name(cls, written: str) -> str:
        WorkloadCode.parse(written)
        return written

    @property
    def code(self) -> WorkloadCode:
        """The function that describes the training."""
        return WorkloadCode.parse(self.workload)
