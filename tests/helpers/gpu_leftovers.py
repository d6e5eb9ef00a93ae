"""What tests before have left of torch's memory on a GPU, so that a cap on it limits the test at hand alone."""

import gc
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

LEAST = 1 << 20  # bytes: what is smaller comes from segments of 2 MiB, and does not matter
DEFAULT_POOL = (0, 0)


def fill_leftovers() -> list[Tensor]:
    """Give back what can be given back, and take what cannot: to be held while memory is limited.

    Workspaces of cuBLAS live as long as the process, in segments of whatever size there was when they were made; the
    rest of such a segment would be there for the test beyond its limit.
    """
    torch.cuda.synchronize()
    gc.unfreeze()  # trainers that were alive when a file of tests began
    gc.collect()
    gc.freeze()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    taken = []
    for segment in _segments():
        if segment["segment_type"] != "large" or tuple(segment["segment_pool_id"]) != DEFAULT_POOL:
            continue
        for block in segment["blocks"]:
            if block["state"] == "inactive" and block["size"] > LEAST:
                taken.append(_taken(segment["stream"], block["size"]))
    print(f"left by tests before: {_told()}; {len(taken)} blocks filled")  # shown where the test fails
    return taken


def _taken(stream: int, size: int) -> Tensor:
    """A tensor in the block of this size: torch takes the smallest one that suffices. Blocks belong to streams."""
    with torch.cuda.stream(torch.cuda.ExternalStream(stream)) if stream else nullcontext():
        return torch.empty(size, dtype=torch.uint8, device="cuda")


def _segments() -> list[dict[str, Any]]:
    return [segment for segment in torch.cuda.memory_snapshot() if segment["device"] == torch.cuda.current_device()]


def _told() -> str:
    pools: dict[tuple[int, ...], int] = {}
    for segment in _segments():
        pool = tuple(segment["segment_pool_id"])
        pools[pool] = pools.get(pool, 0) + segment["total_size"]
    sizes = ", ".join(f"pool {pool}: {size / 2**20:.0f} MiB" for pool, size in pools.items()) or "nothing"
    return f"{sizes}, of which {torch.cuda.memory_allocated() / 2**20:.0f} MiB allocated"
