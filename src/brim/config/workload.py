"""A workload: what a configuration names, ready to be trained, planned and measured."""

from pathlib import Path
from typing import Any, Protocol

from brim.config.load import RunConfig
from brim.config.outcome import JobFacts, Outcome
from brim.config.own_model import OwnModelConfig
from brim.config.own_workload import OwnWorkload
from brim.config.recommender_workload import RecommenderWorkload
from brim.engine import Trainer


class Workload(Protocol):
    """One of brim's own, by name, or what a function of the user's returns."""

    def read(self) -> JobFacts:
        """Read the data, and tell what is known before a run."""

    def build_trainer(self, whole_batches: bool = False, **changes: Any) -> Trainer:
        """A trainer with a fresh model, but for ``changes`` of its arguments."""

    def run(self, resume: str | Path | None = None) -> Outcome:
        """Train and test."""

    def plan_job(self) -> dict[str, Any]:
        """The arguments of `brim.plan` for this training."""

    def cache_choice(self) -> tuple[bool | None, str]:
        """Whether encodings are kept on the device, and why; nothing where there are none."""


def open_workload(config: RunConfig) -> Workload:
    """The workload of a configuration. Where that is the user's code, this imports it: the one place that does."""
    return OwnWorkload(config) if isinstance(config, OwnModelConfig) else RecommenderWorkload(config)
