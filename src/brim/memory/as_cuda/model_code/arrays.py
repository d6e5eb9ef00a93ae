"""``tensor.numpy()`` in model code, such as a matching that scipy computes on the host, and numbers put into texts."""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from brim.memory.as_cuda.call_recorder import CallRecorder
from brim.replaced import replaced
from brim.user_line import line_of_job


def fake_tensors_give_arrays(recorder: CallRecorder) -> AbstractContextManager[None]:
    """Whole numbers that are known as they are, and zeros for what only the data knows."""

    def numpy(self: FakeTensor, *, force: bool = False) -> Any:
        if self.requires_grad and not force:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        known = None if self.is_floating_point() or self.is_complex() else recorder.numbers(self)
        if known is None:
            at = line_of_job()
            recorder.note(
                f"an array was asked for{f' at {at}' if at else ''} that only the data knows: zeros were taken"
            )
        shape, dtype = tuple(self.shape), self.dtype
        with _disable_current_modes():
            made = torch.zeros(shape, dtype=dtype) if known is None else torch.tensor(known, dtype=dtype).view(shape)
            return made.numpy()

    def format_number(self: FakeTensor, spec: str) -> str:
        return format(self.detach().item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    return replaced((FakeTensor, "numpy", numpy), (FakeTensor, "__format__", format_number))
