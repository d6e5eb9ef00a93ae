"""The preprocessing cache: what a transform makes of a data set, made once and read from memory maps."""

from brim.data.cache.dataset import CachedDataset, cached

__all__ = ["CachedDataset", "cached"]
