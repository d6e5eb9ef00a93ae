"""Rows of all ranks as one tensor, and gradients on the way back; ranks may have different numbers of rows, or none."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable


class Exchange(Protocol):
    """How ranks exchange rows for one gather: in the forward pass, and again in the backward pass."""

    @property
    def rows(self) -> Sequence[int]:
        """Of each rank."""

    @property
    def rank(self) -> int: ...

    def before_forward(self) -> None: ...

    def before_backward(self) -> None: ...

    def scaled_by_samples(self, gradient: Tensor) -> Tensor:
        """This rank's gradient of all rows, as it adds to those of the other ranks."""

    def unscaled(self, gradient: Tensor) -> Tensor:
        """The sum of all ranks' gradients of this rank's rows, as this rank propagates it."""

    def run(self, collective: Callable[[], Any]) -> None: ...


def joined_rows(tensor: Tensor, exchange: Exchange) -> Tensor:
    """The rows of all ranks, rank after rank; differentiable where ``tensor`` has a gradient."""
    if tensor.requires_grad and torch.is_grad_enabled():
        joined: Tensor = _JoinedRows.apply(tensor, exchange)  # type: ignore[no-untyped-call]
        return joined
    return _all_gather(tensor.detach(), exchange)


class _JoinedRows(torch.autograd.Function):
    """d(sum of all ranks' losses) / d(rows of one rank) is the sum of what each rank's loss makes of these rows."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange = exchange
        return _all_gather(tensor, exchange)

    @staticmethod
    @once_differentiable  # a collective has no gradient of its own
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        exchange: Exchange = ctx.exchange
        # Sums of ranks in 16 bits would round otherwise than those of one process.
        carried = torch.float32 if gradient.element_size() < 4 else gradient.dtype
        sums = exchange.scaled_by_samples(gradient.to(carried, copy=True).contiguous())
        exchange.before_backward()
        exchange.run(lambda: dist.all_reduce(sums))
        start = sum(exchange.rows[: exchange.rank])
        own = sums[start : start + exchange.rows[exchange.rank]]
        return exchange.unscaled(own).to(gradient.dtype), None


def _all_gather(tensor: Tensor, exchange: Exchange) -> Tensor:
    """In as many rows as the longest has: not every backend takes other numbers of them."""
    most = max(exchange.rows)
    filled = tensor.new_zeros((most, *tensor.shape[1:]))
    filled[: len(tensor)] = tensor
    received = [torch.empty_like(filled) for _ in exchange.rows]  # before others wait for this rank
    exchange.before_forward()
    exchange.run(lambda: dist.all_gather(received, filled))
    return torch.cat([part[:rows] for part, rows in zip(received, exchange.rows, strict=True)])
