"""What decides the weights of the linear recommender."""

import math
import random
from dataclasses import dataclass, fields

from brim.errors import ConfigError

RANGES: dict[str, tuple[float, ...]] = {
    "regularisation": (250.0, 350.0, 500.0, 700.0),
    "denoising": (0.5, 1.0, 1.5, 2.0),
    "user_power": (0.5, 0.7, 0.85, 1.0),
    "discount": (0.05, 0.1, 0.15, 0.2),
    "text_weight": (15.0, 30.0, 60.0, 120.0),
}


@dataclass(frozen=True)
class LinearSettings:
    """The defaults are those that ranked the validation split of MovieLens-1M best.

    Args:
        regularisation: added to how often each item occurs, as in EASE.
        denoising: so many times an item's own count more: as if items were dropped from histories at random (EDLAE).
        user_power: a person who watched n items counts n to minus this power, relative to the mean.
        discount: scores are divided by an item's count to this power.
        text_weight: how many people, all told, the likeness of two equal texts is worth.
    """

    regularisation: float = 500.0
    denoising: float = 1.5
    user_power: float = 1.0
    discount: float = 0.15
    text_weight: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"{field.name}={value} must be a number of at least 0")
        if self.regularisation == 0:
            raise ConfigError("regularisation=0 must be above 0: items that nobody watched have no weights without it")

    @classmethod
    def drawn(cls, number: int) -> "LinearSettings":
        """The ``number``-th of a sequence to choose from: the defaults, then random ones.

        >>> LinearSettings.drawn(0) == LinearSettings()
        True
        """
        draw = random.Random(number)
        return cls(**{name: draw.choice(values) for name, values in RANGES.items()}) if number else cls()

    def __str__(self) -> str:
        return ", ".join(f"{field.name} {getattr(self, field.name):g}" for field in fields(self))
