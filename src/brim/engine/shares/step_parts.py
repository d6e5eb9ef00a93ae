"""The time of steps in parts."""

from dataclasses import dataclass

from brim.record.series import SHARE


@dataclass(frozen=True)
class StepParts:
    """Seconds of a step by what they went to, as ``brim doctor`` tells them apart on a GPU.

    ``data_wait``: the device is idle, and the host waits for a batch. ``copy``: a copy to the device runs, and no
    kernel. ``compute``: a kernel runs. ``sync``: the device is idle because the host has waited for it. ``launch``: it
    is idle otherwise.
    """

    data_wait: float = 0.0
    copy: float = 0.0
    compute: float = 0.0
    sync: float = 0.0
    launch: float = 0.0

    @property
    def seconds(self) -> float:
        return self.data_wait + self.copy + self.compute + self.sync + self.launch

    def __add__(self, other: "StepParts") -> "StepParts":
        return StepParts(
            self.data_wait + other.data_wait, self.copy + other.copy, self.compute + other.compute,
            self.sync + other.sync, self.launch + other.launch,
        )  # fmt: skip

    def shares(self) -> dict[str, float]:
        """By name, as metrics.jsonl has them; none where there was no time."""
        parts = {
            "data_wait": self.data_wait, "copy": self.copy, "compute": self.compute, "sync": self.sync,
            "launch": self.launch,
        }  # fmt: skip
        return as_shares(parts)


def as_shares(parts: dict[str, float]) -> dict[str, float]:
    """Seconds by name as shares of their sum.

    >>> as_shares({"data_wait": 1.0, "rest": 3.0})
    {'share/data_wait': 0.25, 'share/rest': 0.75}
    """
    seconds = sum(parts.values())
    return {f"{SHARE}{name}": round(part / seconds, 4) for name, part in parts.items()} if seconds > 0 else {}
