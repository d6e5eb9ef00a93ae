"""A moving average of the weights beside a training, on fake tensors."""

import torch
from torch import Tensor, nn

from brim.memory.trace.trace import Recorder

SWAPPED = "temporary"  # the kind of a weight that changes places with its average


class TracedAverage:
    """A copy of the model that stays on the card, in 32 bits where that has 16, as the engine keeps it."""

    def __init__(self, model: nn.Module, recorder: Recorder) -> None:
        self._recorder = recorder
        self._weights = [
            (_copied(parameter, recorder, name), parameter) for name, parameter in model.named_parameters()
        ]
        self._buffers = [_copied(buffer, recorder, name) for name, buffer in model.named_buffers()]

    @torch.no_grad()
    def update(self) -> None:
        """After an optimizer step: in place, but for weights in 16 bits, which one after the other are made longer."""
        for average, weight in self._weights:
            if average.dtype != weight.dtype:
                average.lerp_(weight.detach().to(average.dtype), 0.5)

    @torch.no_grad()
    def put_in_place(self) -> None:
        """For an evaluation: weights and average change places one by one, or those in 16 bits are kept beside."""
        self._recorder.enter("evaluation")
        self._recorder.watching = True
        kept: list[Tensor] = []
        for average, weight in self._weights:
            copied = weight.detach().clone()
            self._recorder.label(copied, SWAPPED, "")
            if average.dtype != weight.dtype:
                kept.append(copied)
        self._recorder.watching = False


def _copied(tensor: Tensor, recorder: Recorder, name: str) -> Tensor:
    is_short = tensor.is_floating_point() and tensor.element_size() < 4
    copied = torch.empty_like(tensor, dtype=torch.float32 if is_short else None, requires_grad=False)
    recorder.record_copy(copied, "average", name)
    return copied
