"""A workload: what a configuration describes, ready to be trained, planned and measured; and those with a name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from brim.engine import Trainer
from brim.workloads.outcome import JobFacts, Outcome


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


@dataclass(frozen=True)
class NamedWorkload:
    """A workload of brim's own: it brings its configuration and its program, and ``workload: NAME`` starts it.

    Args:
        config: the type of its configuration, a ``Section`` with the fields ``workload`` and ``trainer``.
        program: opens a checked configuration.
        trainer_defaults: what it wants other than the trainer's own defaults.
    """

    config: type[Any]
    program: Callable[[Any], Workload]
    trainer_defaults: Mapping[str, Any]
