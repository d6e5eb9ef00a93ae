"""What tests of the engine share: several devices where there is one CPU."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn.parallel import comm, replicate

from brim.engine.data_parallel.data_parallel import DataParallelLoss
from brim.engine.data_parallel.replicas import Replicas, Replicate

CPU = torch.device("cpu")


def _replicate(model: nn.Module, devices: Any) -> list[Any]:
    """torch's own replicate, with copies in the place of what it sends to other GPUs; the first gets the originals."""

    def broadcast(tensors: Any, devices: Any, buffer_size: int = 0) -> list[Any]:
        return [list(tensors), *([tensor.detach().clone() for tensor in tensors] for _ in devices[1:])]

    with mock.patch.object(comm, "broadcast_coalesced", broadcast):
        return replicate(model, list(range(len(devices))), detach=True)


@pytest.fixture(scope="session")
def copies_of() -> Callable[..., Replicas]:
    """Copies of a model on "devices" that are all the CPU: everything but the sending is real."""
    return lambda model, number=3, **settings: Replicas(model, [CPU] * number, _replicate, **settings)


@pytest.fixture(scope="session")
def parallel() -> Callable[..., DataParallelLoss]:
    """A loss over so many such devices, or over one GPU that is named twice; ``told`` gets what the user would hear."""

    def make(
        model: nn.Module, loss_fn: Any = None, devices: Any = 3, told: Any = None, sliceable: bool | None = True
    ) -> DataParallelLoss:
        tell = (lambda sentence: None) if told is None else told.append
        devices = [CPU] * devices if isinstance(devices, int) else devices
        return DataParallelLoss(model, loss_fn, devices, sliceable, tell, _replicate)

    return make


@pytest.fixture(scope="session")
def replicas_here() -> Replicate:
    """Makes copies of a model for such devices."""
    return _replicate
