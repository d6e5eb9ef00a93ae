"""What a child process is asked to do."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

OWN_FAULT = 70  # the exit code of a child in which the doctor failed, not the script: EX_SOFTWARE

# What a DataLoader without workers takes for settings of theirs: it refuses a start method, and a limit of waiting.
WITHOUT_WORKERS = {"persistent_workers": False, "prefetch_factor": None, "multiprocessing_context": None, "timeout": 0}


@dataclass(frozen=True)
class Cures:
    """Changes that need none of the user's code. What is None or False stays as the script has it."""

    num_workers: int | None = None
    persistent_workers: bool | None = None
    prefetch_factor: int | None = None
    batched_access: bool = False
    pinned_copies: bool = False
    device_prefetch: bool = False
    resident_data: bool = False
    threads: int | None = None
    fused_optimizer: bool = False
    freeze_garbage: bool = False
    no_anomaly_detection: bool = False
    compile: bool = False
    # These change the numbers, and are tried on request only.
    tf32: bool = False
    bf16: bool = False

    @property
    def are_none(self) -> bool:
        return self == Cures()

    @property
    def in_words(self) -> str:
        """
        >>> Cures(num_workers=2, fused_optimizer=True).in_words
        'num_workers=2, fused_optimizer=True'
        """
        return ", ".join(f"{name}={value}" for name, value in self.as_json().items())

    def as_json(self) -> dict[str, Any]:
        """What they change, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None and value is not False}

    @property
    def are_of_copies(self) -> bool:
        """Whether all that they change is how batches are copied to a device."""
        return not self.are_none and replace(self, pinned_copies=False, device_prefetch=False).are_none

    def with_others(self, others: "Cures") -> "Cures":
        """These and others; where both say something, the others.

        >>> Cures(num_workers=2, threads=1).with_others(Cures(num_workers=0)).in_words
        'num_workers=0, threads=1'
        """
        return replace(self, **others.as_json())


@dataclass(frozen=True)
class Order:
    """A script, how to watch it, and what to change."""

    script: str
    arguments: tuple[str, ...] = ()
    folder: str = ""
    observes: bool = True  # all stages; else only times and losses
    cures: Cures = field(default_factory=Cures)
    seed: int = 0
    source: str = ""  # what to run in the place of the script's text, under its name
    pace: float = 1.0  # by which the seconds of all stages are multiplied
    compile_cache: str = ""  # a folder in which processes that compile find what others have compiled


def read_order(text: str) -> Order:
    return TypeAdapter(Order).validate_json(text)
