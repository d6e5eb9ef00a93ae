"""Tar shards in webdataset's convention: packed, indexed, and read by number.

In: files, or shards. Out: shards with an index and checksums; a data set of their samples.
"""

from brim.data.tar.packing import PackSummary, pack
from brim.data.tar.shards import DamagedSample, Shards

__all__ = ["DamagedSample", "PackSummary", "Shards", "pack"]
