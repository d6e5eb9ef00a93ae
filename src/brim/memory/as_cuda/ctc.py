"""ctc_loss, which asks for its lengths as numbers, through torch's own CUDA kernel.

cuDNN's is taken only for targets in one row, in int32; then this is what torch's own would need.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from brim.memory.as_cuda.call_recorder import CallRecorder

UNKNOWN_LENGTHS = (
    "the target lengths given to ctc_loss are not known before training: the longest that they could be were taken"
)
REDUCTIONS: dict[Any, str] = {0: "none", 1: "mean", 2: "sum"}
LOW = (torch.float16, torch.bfloat16)


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
    """As ``torch.nn.functional.ctc_loss`` and ``torch.ctc_loss``, which differ in how they write the reduction."""
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
