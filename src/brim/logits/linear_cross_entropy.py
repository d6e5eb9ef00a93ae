"""The cross entropy of a linear layer, with logits for a chunk of tokens at a time."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from brim.arguments.known import explained_call
from brim.errors import ConfigError, a_type
from brim.logits.chunks import ChunkGradients, ChunkRule, gradients_of, loss_and_gradients
from brim.logits.soft_cap import soft_capped
from brim.sizes import check_whole

REDUCTIONS = ("mean", "sum")


@explained_call
def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    bias: Tensor | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    scale: float = 1.0,
    softcap: float | None = None,
    chunk: int | None = None,
) -> Tensor:
    """``F.cross_entropy(F.linear(hidden, weight, bias), targets)``, but for rounding, without all logits in memory.

    Logits exist for ``chunk`` tokens at a time. The gradients are computed in the forward pass, from the same logits,
    and multiplied in the backward pass by what comes from above: as many matrix products as the plain loss takes. In
    float16 they are computed in the backward pass, from logits that are computed again, for the factor of a gradient
    scaler must come first; so are those of a second backward pass (``retain_graph=True``).

    Under ``torch.autocast`` the products are in its type, as those of a linear layer are; softmax and sums are in
    float32, and so is the loss. Forward-mode differentiation is refused by torch. Under ``torch.func`` and
    ``torch.compile``, and where gradients are differentiated again, it is the plain loss, with all logits.

    Args:
        hidden: what the last layer would be given, (..., features).
        weight: of the last layer, (vocabulary, features); it may be tied with an embedding, or frozen.
        targets: whole numbers, (...).
        bias: of the last layer, (vocabulary,).
        ignore_index: the target that is not counted.
        label_smoothing: as in ``F.cross_entropy``.
        reduction: ``"mean"`` over the targets that count, or ``"sum"``.
        scale: a number that logits are multiplied by.
        softcap: a bound for logits: ``softcap * tanh(logits / softcap)``; None for none.
        chunk: tokens whose logits exist at once; None for as many as have 32 million logits.

    Returns:
        The loss; not a number where no target counts and ``reduction`` is ``"mean"``, as torch gives it.

    >>> hidden, weight = torch.randn(6, 8, requires_grad=True), torch.randn(100, 8, requires_grad=True)
    >>> targets = torch.tensor([3, 14, 15, 92, 65, -100])
    >>> loss = linear_cross_entropy(hidden, weight, targets)
    >>> torch.allclose(loss, F.cross_entropy(F.linear(hidden, weight), targets))
    True
    """
    _check(hidden, weight, targets, bias, reduction, label_smoothing, softcap, chunk)
    rule = ChunkRule(ignore_index, label_smoothing, reduction, scale, softcap, chunk)
    flat, wanted = hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1)
    if is_looked_through():
        return _whole(flat, weight, wanted, bias, rule)
    loss: Tensor = _LinearCrossEntropy.apply(flat, weight, bias, wanted, rule, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    """ChunkGradients are made in the forward pass, with a factor of 1 a token, and wait for theirs in the context."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, rule: ChunkRule, grad: bool
    ) -> Tensor:
        kind, dtype = hidden.device.type, hidden.dtype
        if torch.is_autocast_enabled(kind) and hidden.is_floating_point() and dtype != torch.float64:
            dtype = torch.get_autocast_dtype(kind)
        wanted = tuple(grad and need for need in ctx.needs_input_grad[:3])
        now = (False, False, False) if dtype == torch.float16 else wanted
        with torch.autocast(kind, enabled=False):
            loss, share, gradients = loss_and_gradients(hidden, weight, bias, targets, rule, dtype, now)
        ctx.save_for_backward(hidden, weight, bias, targets, share)
        ctx.rule, ctx.dtype, ctx.wanted, ctx.kind = rule, dtype, wanted, kind
        ctx.gradients = gradients if any(now) else None
        return loss

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        # Looked at even where it is not used: torch refuses a weight that was changed since the forward pass.
        hidden, weight, bias, targets, share = ctx.saved_tensors
        if torch.is_grad_enabled():  # these gradients will be differentiated
            return (*_plain_gradients(ctx, (hidden, weight, bias), targets, above), None, None, None)
        factor = above.to(share.dtype) * share
        gradients: ChunkGradients | None = ctx.gradients
        ctx.gradients = None  # multiplied in place and handed over: another backward pass makes its own
        if gradients is None:
            with torch.autocast(ctx.kind, enabled=False):
                gradients = gradients_of(hidden, weight, bias, targets, ctx.rule, ctx.dtype, ctx.wanted, factor)
        else:
            gradients.scale_(factor)
        return (*gradients.like(hidden, weight, bias), None, None, None)


def _plain_gradients(ctx: Any, parts: tuple[Tensor | None, ...], targets: Tensor, above: Tensor) -> list[Tensor | None]:
    """The gradients with a graph of their own, from the plain loss."""
    hidden, weight, bias = parts
    assert hidden is not None and weight is not None
    with torch.autocast(ctx.kind, ctx.dtype, enabled=ctx.dtype != hidden.dtype):
        loss = _whole(hidden, weight, targets, bias, ctx.rule)
    trained = [part for part, wanted in zip(parts, ctx.wanted, strict=True) if part is not None and wanted]
    found = iter(torch.autograd.grad(loss, trained, above, create_graph=True))
    return [
        next(found) if part is not None and wanted else None for part, wanted in zip(parts, ctx.wanted, strict=True)
    ]


def _whole(hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None, rule: ChunkRule) -> Tensor:
    logits = soft_capped(F.linear(hidden, weight, bias), rule.scale, rule.softcap)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(
        logits, targets, ignore_index=rule.ignore_index, reduction=rule.reduction, label_smoothing=rule.label_smoothing
    )


def is_looked_through() -> bool:
    """Whether something looks through the operations that a function with a backward pass of its own would hide."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def _check(
    hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None, reduction: str, label_smoothing: float,
    softcap: float | None, chunk: int | None,
) -> None:  # fmt: skip
    for name, given in (("hidden", hidden), ("weight", weight), ("targets", targets)):
        if not isinstance(given, Tensor):
            raise ConfigError(f"{name} is {a_type(given)}, and linear_cross_entropy takes a tensor")
    if reduction not in REDUCTIONS:
        raise ConfigError(f"reduction={reduction!r} is not known to linear_cross_entropy; use 'mean' or 'sum'")
    if not 0.0 <= label_smoothing <= 1.0:
        raise ConfigError(f"label_smoothing={label_smoothing} must be between 0 and 1")
    if softcap is not None and softcap <= 0:
        raise ConfigError(f"softcap={softcap} must be above 0, or None")
    if chunk is not None:
        check_whole("chunk", chunk, or_else="None")
    if weight.dim() != 2 or hidden.dim() < 1 or hidden.shape[-1] != weight.shape[1]:
        raise ConfigError(
            f"hidden has shape {tuple(hidden.shape)} and weight {tuple(weight.shape)}; they must be (..., features) "
            "and (vocabulary, features)"
        )
    if targets.shape != hidden.shape[:-1] or targets.is_floating_point():
        raise ConfigError(
            f"targets are {targets.dtype} of shape {tuple(targets.shape)}, and hidden has shape {tuple(hidden.shape)}; "
            f"they must be whole numbers, one for each token: shape {tuple(hidden.shape[:-1])}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ConfigError(f"bias has shape {tuple(bias.shape)}, and must have one number a word: {weight.shape[0]}")
