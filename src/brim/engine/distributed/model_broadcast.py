"""The first rank's weights and norm statistics, on every rank, and what of a model ranks do not have alike."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from brim.engine.distributed.ranks import Ranks
from brim.errors import some_of

SHOWN = 4  # names in a sentence
WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


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


def remark_on_differences(model: nn.Module, ranks: Ranks) -> str | None:
    """What to tell where ranks have changed weights or buffers by themselves. All ranks call it."""
    known = {id(buffer) for buffer in norm_statistics(model)}
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    own = {name: _mark(tensor) for name, tensor in tensors.items() if id(tensor) not in known}
    first, *others = ranks.all_gather_object(own)
    differs = [
        name
        for name, (size, bits) in first.items()
        if any(other[name][0] == size and other[name][1] != bits for other in others if name in other)
    ]
    if not differs:
        return None
    return (
        f"{some_of(differs, SHOWN)}: not the same on all ranks. Something changes them on each rank for itself (a "
        "callback or an optimizer that draws random numbers, statistics of a rank's share of the batch); each rank "
        "goes on with its own, and the first one's are saved: draw from a generator with the same seed on all ranks, "
        "or all-reduce what is added"
    )


def _mark(tensor: Tensor) -> tuple[int, int]:
    """Its size, and the sum of its bits as whole numbers, in which no rounding depends on the machine."""
    plain = tensor.detach()
    is_plain = type(plain) is Tensor and plain.layout is torch.strided and not (plain.is_quantized or plain.is_meta)
    if not is_plain or plain.element_size() not in WHOLE:
        return 0, 0
    return plain.numel(), int(plain.contiguous().view(WHOLE[plain.element_size()]).sum(dtype=torch.int64))


def _without_repeats(tensor: Tensor) -> Tensor:
    """Each number of an expanded tensor once, in the same memory."""
    sizes = [1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return tensor.as_strided(sizes, tensor.stride(), tensor.storage_offset())
