"""What a child process is asked to do."""

from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter


@dataclass(frozen=True)
class Cures:
    """Changes that need none of the user's code. What is None or False stays as the script has it."""

    num_workers: int | None = None
    persistent_workers: bool | None = None
    prefetch_factor: int | None = None
    batched_access: bool = False
    threads: int | None = None
    fused_optimizer: bool = False
    freeze_garbage: bool = False

    @property
    def are_none(self) -> bool:
        return self == Cures()


@dataclass(frozen=True)
class Order:
    """A script, how to watch it, and what to change."""

    script: str
    arguments: tuple[str, ...] = ()
    folder: str = ""
    observes: bool = True  # all stages; else only times and losses
    cures: Cures = field(default_factory=Cures)
    seed: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read_order(text: str) -> Order:
    return TypeAdapter(Order).validate_json(text)
