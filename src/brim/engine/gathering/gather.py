"""``brim.gather``: the rows of all ranks, with gradients that flow back to the ranks they came from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from brim.engine.gathering.joined_rows import joined_rows
from brim.engine.numbers.gather_scope import gather_scope
from brim.errors import ConfigError, a_type


@torch.compiler.disable  # type: ignore[untyped-decorator]
def gather(tensor: Tensor) -> Tensor:
    """The rows of ``tensor`` of all ranks, one rank after the other: a differentiable all-gather.

    For losses that compare the samples of a batch, to be called in the loss by every rank, equally often: it returns
    what one process with the whole batch would have. A rank may have fewer rows than others, or none. In one process,
    and where brim evaluates a batch on one rank, it is the tensor itself. Elsewhere in a program with a process group,
    each rank's gradient is the sum of all ranks' gradients of its rows.

    Args:
        tensor: what this rank has, with a row for each of its samples; the other dimensions are the same on all ranks.

    Returns:
        The rows of all ranks, the same on each of them.

    >>> gather(torch.ones(2, 3)).shape  # in one process
    torch.Size([2, 3])
    """
    if not isinstance(tensor, Tensor) or tensor.dim() == 0:
        got = "a tensor without dimensions" if isinstance(tensor, Tensor) else f"{a_type(tensor)}"
        raise ConfigError(f"brim.gather(tensor) joins the rows of all ranks, and got {got}; hand over tensors by rows")
    scope = gather_scope()
    if scope is not None:
        return scope.gather(tensor)
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return tensor
    return joined_rows(tensor, _Plain.of(tensor))


@dataclass(frozen=True)
class _Plain:
    """Outside of brim's steps: every rank's gradient counts as it is."""

    rows: Sequence[int]
    rank: int

    @classmethod
    def of(cls, tensor: Tensor) -> "_Plain":
        own = torch.tensor([len(tensor)], device=tensor.device)
        counts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(counts, own)
        return cls([int(count) for count in counts], dist.get_rank())

    def before_forward(self) -> None:
        """Nobody is asked."""

    def before_backward(self) -> None:
        """Nobody is asked."""

    def scaled_by_samples(self, gradient: Tensor) -> Tensor:
        return gradient

    def unscaled(self, gradient: Tensor) -> Tensor:
        return gradient

    def run(self, collective: Callable[[], Any]) -> None:
        collective()
