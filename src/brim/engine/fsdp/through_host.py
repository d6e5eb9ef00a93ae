"""FSDP between ranks that share a GPU: NCCL refuses that, and gloo cannot gather on a GPU, so it goes through the host.

Slow, and exact: for trying a sharded training where there is one GPU.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from brim.errors import ConfigError


class _Allocates:
    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class GatherThroughHost(_Allocates):
    """What FSDP calls to gather weights."""

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> None:
        gathered = torch.empty(output_tensor.shape, dtype=output_tensor.dtype)
        dist.all_gather_into_tensor(gathered, input_tensor.cpu(), group=group)
        output_tensor.copy_(gathered)


class ReduceThroughHost(_Allocates):
    """What FSDP calls to add up gradients and hand out the parts."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        part = torch.empty(output_tensor.shape, dtype=output_tensor.dtype)
        dist.reduce_scatter_tensor(part, input_tensor.cpu(), op=op, group=group)
        output_tensor.copy_(part)


def exchange_through_host(module: nn.Module) -> None:
    """Let all of a sharded model's exchanges go through the host."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            if not hasattr(part, "set_custom_all_gather"):
                raise ConfigError(
                    f"ranks that share a GPU cannot shard a model with torch {torch.__version__}; give each its own GPU"
                )
            part.set_custom_all_gather(GatherThroughHost())  # type: ignore[arg-type]
            part.set_custom_reduce_scatter(ReduceThroughHost())  # type: ignore[arg-type]
