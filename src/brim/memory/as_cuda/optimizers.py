"""torch's optimizers choose their implementation by device: on CUDA the multi-tensor ("foreach") one."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.optim.optimizer as torch_optimizer
from torch._subclasses.fake_tensor import FakeTensor

from brim.replaced import replaced

FOREACH, CAPTURABLE = "_get_foreach_kernels_supported_devices", "_get_capturable_supported_devices"


@contextmanager
def optimizers_as_on_cuda() -> Iterator[None]:
    """Let optimizers treat fake parameters as CUDA parameters: foreach where the user did not choose, and capturable
    where the user did."""
    types: list[Any] = torch_optimizer._foreach_supported_types
    types.append(FakeTensor)
    try:
        with replaced(_with_cpu(torch_optimizer, FOREACH), *(_with_cpu(room, CAPTURABLE) for room in _rooms())):
            yield
    finally:
        types.remove(FakeTensor)


def _rooms() -> list[Any]:
    """The modules of torch's optimizers, each of which has imported the question for itself."""
    rooms = [room for name, room in sys.modules.items() if name.startswith("torch.optim.")]
    return [room for room in rooms if CAPTURABLE in vars(room)]


def _with_cpu(room: Any, name: str) -> tuple[Any, str, Any]:
    devices = getattr(room, name)

    def with_cpu(*args: Any, **kwargs: Any) -> list[str]:
        return [*devices(*args, **kwargs), "cpu"]

    return room, name, with_cpu
