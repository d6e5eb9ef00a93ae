"""The first rank's weights and norm statistics, on every rank."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from brim.engine.distributed.ranks import Ranks


def broadcast_model(model: nn.Module, ranks: Ranks) -> None:
    """Everybody takes the first rank's weights and buffers."""
    if ranks.is_alone:
        return
    for tensor in [*model.parameters(), *model.buffers()]:
        own = _without_repeats(tensor.detach())
        sent = torch.empty(own.numel(), dtype=own.dtype, device=ranks.device).copy_(own.reshape(-1))
        with ranks.collective("sending the first rank's weights"):
            dist.broadcast(sent.view(torch.uint8), 0)  # as bytes, since not every type can be sent
        own.copy_(sent.view(own.shape))


def broadcast_norm_statistics(model: nn.Module, ranks: Ranks) -> None:
    """Everybody takes the first rank's statistics of norms: they are those of its samples."""
    if ranks.is_alone:
        return
    for buffer in norm_statistics(model):
        with ranks.collective("sending the first rank's statistics"):
            dist.broadcast(buffer, 0)


def norm_statistics(model: nn.Module) -> list[Tensor]:
    """Buffers of norms, which steps move. Other buffers may differ in number (caches) or hold infinities (masks)."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._NormBase)]
    return [buffer for norm in norms for buffer in norm._buffers.values() if buffer is not None]


def _without_repeats(tensor: Tensor) -> Tensor:
    """Each number of an expanded tensor once, in the same memory."""
    sizes = [1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return tensor.as_strided(sizes, tensor.stride(), tensor.storage_offset())
