"""Tensors of which every rank holds a part: the whole of one, and the part of a whole.

What torch needs for these takes a second to import, so that happens where one is met.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def is_sharded(tensor: Any) -> bool:
    """Whether every rank holds a part of it."""
    return isinstance(tensor, Tensor) and hasattr(tensor, "device_mesh")


def local_part(tensor: Tensor) -> Tensor:
    """What this rank holds of it: all of a plain tensor."""
    part: Tensor = tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
    return part


def whole(tensor: Tensor) -> Tensor:
    """All of it. All ranks take part."""
    if is_sharded(tensor) and tensor.is_cuda and dist.get_backend() == "gloo":  # which cannot gather on a GPU
        parts: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(parts, local_part(tensor).cpu())
        return torch.cat(parts)
    found: Tensor = tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
    return found


def whole_on_host(value: Any, keep: bool) -> Any:
    """The same containers with whole tensors on the CPU. All ranks take part; those that do not ``keep`` get none."""
    if isinstance(value, Tensor):
        found = whole(value.detach())
        return found.to("cpu", copy=True) if keep else None
    if isinstance(value, dict):
        return {key: whole_on_host(item, keep) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(whole_on_host(item, keep) for item in value)
    return value


def part_like(found: Tensor, like: Tensor) -> Tensor:
    """This rank's part of a tensor that all of them have, spread as ``like`` is. Nobody is asked."""
    if not is_sharded(like) or is_sharded(found) or found.shape != like.shape:
        return found
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(found.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def spread(part: Tensor, like: Tensor) -> Tensor:
    """The tensor of which every rank has such a part, spread as ``like`` is."""
    from torch.distributed.tensor import DTensor

    assert isinstance(like, DTensor)
    made: Tensor = DTensor.from_local(
        part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    return made


def copy_part(into: Tensor, part: Tensor) -> None:
    """Overwrite what this rank holds."""
    with torch.no_grad():
        local_part(into).copy_(part)
