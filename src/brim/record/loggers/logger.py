"""What a logger is: where the numbers of a run go beside metrics.jsonl."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Logger(Protocol):
    """What a logger of the user's own has; one with ``start(folder)`` hears before the first line where the run is."""

    def write(self, step: int, epoch: int, numbers: dict[str, float]) -> None: ...

    def close(self) -> None: ...
