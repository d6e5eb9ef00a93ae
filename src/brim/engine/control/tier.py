"""A tier, applied: data in its batches, and a model that caches as it says."""

from typing import Any

from torch import nn

from brim.data import Loader, as_feed
from brim.errors import ConfigError
from brim.hardware.tiers import TIERS


def apply_tier(name: str | None, model: nn.Module, train_data: Any) -> Any:
    """The training data in batches of the tier; a model that can cache encodings does, or does not, as the tier says.

    Raises:
        ConfigError: where the data has batches of another size already.
    """
    if name is None:
        return train_data
    tier = TIERS[name]
    if isinstance(getattr(model, "use_cache", None), bool):
        from brim.memory.planning.estimates import switch  # with all of the forecast, which most runs never need

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
