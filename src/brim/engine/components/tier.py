"""Ready-made settings that people know by how much memory a GPU has. A forecast chooses better, and does by default."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from brim.data import Loader, as_feed
from brim.errors import ConfigError
from brim.memory.planning.estimates import switch


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


def apply_tier(name: str | None, model: nn.Module, train_data: Any) -> Any:
    """The training data in batches of the tier; a model that can cache encodings does, or does not, as the tier says.

    Raises:
        ConfigError: where the data has batches of another size already.
    """
    if name is None:
        return train_data
    tier = TIERS[name]
    if isinstance(getattr(model, "use_cache", None), bool):
        switch(model, tier.use_cache)
    feed = as_feed(train_data)
    if isinstance(feed, Loader) and feed is not train_data and not hasattr(train_data, "batch_size"):
        return Loader(feed.data, tier.batch_size, collate_fn=feed.request.collate)
    size = getattr(train_data, "batch_size", None)
    if size != tier.batch_size:
        has = f"batches of {size:,}" if isinstance(size, int) else "batches of its own"
        raise ConfigError(
            f"tier={name!r} is batches of {tier.batch_size:,}, and train_data has {has}; hand over the data itself, or "
            "leave tier out"
        )
    return train_data
