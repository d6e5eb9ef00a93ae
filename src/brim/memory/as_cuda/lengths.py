"""Functions of torch that read lengths from memory, which fake tensors do not have."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from brim.memory.as_cuda.call_recorder import CallRecorder
from brim.memory.as_cuda.ctc import ctc_loss
from brim.memory.as_cuda.packed import pack, unpack


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
