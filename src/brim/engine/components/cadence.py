"""How often something happens: every n epochs, or every n optimizer steps."""

import re
from dataclasses import dataclass
from typing import Any

from brim.errors import ConfigError


@dataclass(frozen=True)
class Cadence:
    """``2`` or ``"2 epochs"``, or ``"500 steps"``.

    >>> Cadence.parse("500 steps").after_step(1000)
    True
    """

    every: int
    unit: str = "epochs"

    @classmethod
    def parse(cls, value: Any) -> "Cadence":
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return cls(value)
        match = re.fullmatch(r"\s*(\d{1,12})\s*(epoch|step)s?\s*", value) if isinstance(value, str) else None
        if match is None or int(match[1]) < 1:
            raise ConfigError(
                f"eval_every={value!r} must be a number of epochs such as 1, or a text such as '500 steps'"
            )
        return cls(int(match[1]), match[2] + "s")

    def between(self, first: tuple[int, int], last: tuple[int, int]) -> int:
        """How often it happened after one moment, until another; both are (epochs done, steps done)."""
        place = 0 if self.unit == "epochs" else 1
        return max(0, last[place] // self.every - first[place] // self.every)

    def after_step(self, step: int) -> bool:
        return self.unit == "steps" and step % self.every == 0

    def after_epoch(self, epochs_done: int) -> bool:
        return self.unit == "epochs" and epochs_done % self.every == 0
