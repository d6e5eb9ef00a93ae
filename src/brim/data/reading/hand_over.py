"""How a batch goes from a worker process to the one that trains.

torch hands every tensor over as a file descriptor of shared memory, for which the two processes connect, prove to each
other who they are, and map the file: 0.3 ms of both, however small the tensor. Short tensors, such as labels or a few
small pictures, go through the pipe by value instead, and are put together in memory of the worker's own.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import collate, collate_tensor_fn, default_collate_fn_map

from brim.data.batches.batch import Batch, leaves_of, map_leaves

LONGEST = 512 << 10  # bytes of a tensor: copying more takes longer than handing over a descriptor


class ByValue:
    """A tensor that is pickled with its numbers, and is a tensor again where it is unpickled."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __reduce__(self) -> tuple[Any, ...]:
        content = self.tensor.flatten().view(torch.uint8).numpy().tobytes()
        return _tensor, (content, self.tensor.dtype, tuple(self.tensor.shape))


def _tensor(content: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """In memory of torch's own: where numbers begin elsewhere than its tensors do, products may round otherwise."""
    tensor = torch.empty(shape, dtype=dtype)
    tensor.reshape(-1).view(torch.uint8).numpy()[:] = np.frombuffer(content, np.uint8)
    return tensor


def to_hand_over(batch: Batch) -> Batch:
    """The batch with its short tensors by value; as it is where tensors share memory, which they must go on doing.

    >>> import pickle
    >>> pickle.loads(pickle.dumps(to_hand_over({"label": torch.tensor([1, 2])})))
    {'label': tensor([1, 2])}
    """
    tensors = [leaf for leaf in leaves_of(batch) if isinstance(leaf, Tensor)]
    places = {tensor.untyped_storage().data_ptr() for tensor in tensors if _is_plain(tensor)}
    if len(places) < len(tensors):
        return batch
    return map_leaves(lambda leaf: ByValue(leaf) if isinstance(leaf, Tensor) and _is_short(leaf) else leaf, batch)


def collate_short(samples: list[Any]) -> Batch:
    """What torch's ``default_collate`` makes of samples, without shared memory for what is handed over by value."""
    if default_collate_fn_map.get(Tensor) is not collate_tensor_fn:  # the user has another one
        return default_collate(samples)
    return collate(samples, collate_fn_map={**default_collate_fn_map, Tensor: _stacked})


def _stacked(tensors: list[Tensor], *, collate_fn_map: Any = None) -> Tensor:
    first = tensors[0]
    is_short = len(tensors) * first.nbytes <= LONGEST and all(type(tensor) is Tensor for tensor in tensors)
    if is_short and first.layout is torch.strided and not first.is_nested:
        return torch.stack(tensors)
    stacked: Tensor = collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)
    return stacked


def _is_plain(tensor: Tensor) -> bool:
    """Whether it consists of its numbers alone, which lie in memory of its own, one after the other."""
    return (
        type(tensor) is Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.requires_grad
        and not tensor.is_conj()
        and not tensor.is_neg()
        and tensor.is_contiguous()
        and tensor.untyped_storage().nbytes() == tensor.nbytes > 0
    )


def _is_short(tensor: Tensor) -> bool:
    return tensor.nbytes <= LONGEST
