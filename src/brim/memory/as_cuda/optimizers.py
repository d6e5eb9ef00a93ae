"""torch's optimizers choose their implementation by device: on CUDA the multi-tensor ("foreach") one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.optim.optimizer as torch_optimizer
from torch._subclasses.fake_tensor import FakeTensor

from brim.replaced import replaced


@contextmanager
def optimizers_as_on_cuda() -> Iterator[None]:
    """Let optimizers treat fake parameters as CUDA parameters: foreach where the user did not choose."""
    devices = torch_optimizer._get_foreach_kernels_supported_devices  # type: ignore[attr-defined]

    def with_cpu() -> list[str]:
        return [*devices(), "cpu"]

    types: list[Any] = torch_optimizer._foreach_supported_types
    types.append(FakeTensor)
    try:
        with replaced((torch_optimizer, "_get_foreach_kernels_supported_devices", with_cpu)):
            yield
    finally:
        types.remove(FakeTensor)
