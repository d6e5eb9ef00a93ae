"""A batch on another device."""

from typing import Any

import torch
from torch import Tensor

from brim.data.batches.batch import Batch, map_leaves


def move_data_to_device(inputs: Batch, device: str | torch.device, non_blocking: bool = True) -> Batch:
    """The same batch on ``device``: any nesting, types kept, strings and numbers left alone.

    ``non_blocking`` holds for copies to a CUDA device only: towards the CPU or MPS an asynchronous copy can be read
    before it has arrived.

    >>> move_data_to_device({"x": torch.ones(2), "name": ["a", "b"]}, "cpu")["x"].device.type
    'cpu'
    """
    target = device if isinstance(device, torch.device) else torch.device(device)
    asynchronous = non_blocking and target.type == "cuda"

    def move(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(target, non_blocking=asynchronous)
        return leaf.to(target) if hasattr(leaf, "to") else leaf

    if type(inputs) is tuple and all(type(leaf) is Tensor for leaf in inputs):  # most batches: spared the walk
        return tuple([leaf.to(target, non_blocking=asynchronous) for leaf in inputs])
    return map_leaves(move, inputs)
