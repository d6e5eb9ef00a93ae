"""Functions of torch that read lengths from memory, which fake tensors do not have: packed sequences, and ctc_loss."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from brim.memory.as_cuda.call_recorder import CallRecorder
from brim.memory.as_cuda.packed import pack, unpack

UNKNOWN_LENGTHS = (
    "the target lengths given to ctc_loss are not known before training: the longest that they could be were taken"
)
REDUCTIONS: dict[Any, str] = {0: "none", 1: "mean", 2: "sum"}
LOW = (torch.float16, torch.bfloat16)


class LengthsAreNumbers(TorchFunctionMode):
    """They are computed with the lengths that are known, or with the longest that there could be."""

    def __init__(self, recorder: CallRecorder) -> None:
        super().__init__()
        self._instead: dict[Any, Callable[..., Any]] = {
            torch._VF._pack_padded_sequence: partial(pack, recorder),  # type: ignore[attr-defined]
            torch._VF._pad_packed_sequence: partial(unpack, recorder),  # type: ignore[attr-defined]
            torch.ctc_loss: partial(ctc_loss, recorder),
            functional.ctc_loss: partial(ctc_loss, recorder),
        }

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._instead.get(function, function)(*args, **(kwargs or {}))


def ctc_loss(
    recorder: CallRecorder,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str | int = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """``torch.nn.functional.ctc_loss`` and ``torch.ctc_loss``, which differ in how they write the reduction.

    By torch's own CUDA kernel: cuDNN's is taken only for targets in one row, in int32.
    """
    if torch.is_autocast_enabled("cpu") and log_probs.dtype in LOW:
        log_probs = log_probs.float()
    batched = log_probs.dim() == 3
    probabilities = log_probs if batched else log_probs.unsqueeze(1)
    longest = _longest(recorder, probabilities.shape[0], targets, target_lengths)
    losses: Tensor = _Ctc.apply(probabilities, targets.to(torch.long), longest)  # type: ignore[no-untyped-call]
    if zero_infinity:
        losses = torch.where(losses == float("inf"), losses.new_zeros(()), losses)
    how = REDUCTIONS.get(reduction, reduction)
    if how == "none":
        return losses if batched else losses.squeeze(0)
    return (losses / losses.new_ones(losses.shape)).mean() if how == "mean" else losses.sum()


def _longest(recorder: CallRecorder, time: int, targets: Tensor, lengths: Tensor | Sequence[int]) -> int:
    known = recorder.numbers(lengths) if isinstance(lengths, Tensor) else [int(length) for length in lengths]
    if known is not None:
        return max(known, default=0)
    recorder.note(UNKNOWN_LENGTHS)
    return min(time, targets.shape[-1])


class _Ctc(torch.autograd.Function):
    """The kernel keeps the probability of every prefix of every target, at every step, for the backward."""

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, targets: Tensor, longest: int) -> Tensor:
        time, batch, _ = log_probs.shape
        losses = log_probs.new_empty(batch)
        log_alpha = log_probs.new_empty(batch, time, 2 * longest + 1)
        ctx.save_for_backward(log_probs, targets, losses, log_alpha)
        return losses

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        log_probs, *_, log_alpha = ctx.saved_tensors
        log_beta = torch.empty_like(log_alpha)
        result = torch.empty_like(log_probs, memory_format=torch.contiguous_format)  # whatever its strides are
        del log_beta
        return result, None, None
