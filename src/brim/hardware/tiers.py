"""Settings that people know by how much memory a GPU has. A forecast chooses better, and does by default."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tier:
    """The optimisation batch, whether encodings are cached, and how many GPUs are used at most."""

    batch_size: int
    use_cache: bool
    gpus: int


TIERS = {"large": Tier(2048, True, 8), "medium": Tier(1024, True, 4), "small": Tier(512, False, 2)}
TIER_MEANS = "large: more than 8 GB a GPU, medium: 4 to 8 GB, small: less than 4 GB"


def most_gpus(tier: str | None) -> int | None:
    """How many GPUs a run may use.

    >>> most_gpus("medium"), most_gpus(None)
    (4, None)
    """
    return None if tier is None else TIERS[tier].gpus
