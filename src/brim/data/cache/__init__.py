"""The preprocessing cache: what a transform makes of a data set, made once and read from memory maps.

In: a data set and a transform. Out: a data set with the same samples, computed once, and again where anything they
depend on has changed.
"""

from brim.data.cache.dataset import CachedDataset, cached

__all__ = ["CachedDataset", "cached"]
