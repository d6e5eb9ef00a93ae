"""Copies of a training state in host memory, which can be written down while the state itself moves on."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Storages = dict[tuple[torch.device, int], torch.UntypedStorage]


def host_copy(value: Any, storages: Storages | None = None) -> Any:
    """The same containers with tensors of their own on the CPU. What shared memory before shares it in the copy.

    >>> weight = torch.ones(2)
    >>> copied = host_copy({"a": weight, "tied": [weight]})
    >>> copied["a"].data_ptr() == copied["tied"][0].data_ptr() != weight.data_ptr()
    True
    """
    storages = {} if storages is None else storages
    if isinstance(value, Tensor):
        return _copy_tensor(value.detach(), storages)
    if isinstance(value, dict):
        return {key: host_copy(item, storages) for key, item in value.items()}
    if type(value) in (list, tuple):
        # Generators of Python and numpy have hundreds of plain numbers.
        return type(value)([item if type(item) is int else host_copy(item, storages) for item in value])
    return value


def _copy_tensor(tensor: Tensor, storages: Storages) -> Tensor:
    if type(tensor) is not Tensor or tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        return tensor.cpu().clone()
    storage = tensor.untyped_storage()
    key = (tensor.device, storage.data_ptr())
    if key not in storages or storage.nbytes() == 0:
        storages[key] = torch.UntypedStorage(storage.nbytes()).copy_(storage)  # type: ignore[no-untyped-call]
    copied = torch.empty(0, dtype=tensor.dtype)
    return copied.set_(storages[key], tensor.storage_offset(), tensor.shape, tensor.stride())


def without_numpy(value: Any) -> Any:
    """The same with Python's numbers for numpy's, such as a learning rate: a checkpoint holds nothing of numpy's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: without_numpy(item) for key, item in value.items()}
    return type(value)(map(without_numpy, value)) if type(value) in (list, tuple) else value


def bytes_of(value: Any) -> int:
    """What a copy of these containers would take."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(bytes_of(item) for item in value.values())
    if type(value) in (list, tuple):
        return sum([bytes_of(item) for item in value if type(item) is not int])
    return 0


class HostModel:
    """A model's weights at one moment, for whoever asks a model for nothing but its ``state_dict()``."""

    def __init__(self, model: "nn.Module | HostModel") -> None:
        self._weights: dict[str, Tensor] = host_copy(dict(model.state_dict()))

    @classmethod
    def holding(cls, weights: dict[str, Tensor]) -> "HostModel":
        """With weights that are copies already."""
        model = cls.__new__(cls)
        model._weights = weights
        return model

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self._weights)
