"""Tar shards in webdataset's convention: packed, indexed, and read by number."""

from brim.data.tar.packing import PackSummary, pack
from brim.data.tar.shards import DamagedSample, Shards

__all__ = ["DamagedSample", "PackSummary", "Shards", "pack"]
