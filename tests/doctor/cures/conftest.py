import pytest
import torch
from torch import Tensor
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as loaders
from torch.utils.data._utils import fetch

CHANGED = [
    (Tensor, "to"), (Tensor, "cuda"), (torch, "set_num_threads"), (DataLoader, "__init__"),
    (fetch._MapDatasetFetcher, "fetch"), (loaders._BaseDataLoaderIter, "__next__"),
    (loaders._BaseDataLoaderIter, "_reset"), (loaders._MultiProcessingDataLoaderIter, "_reset"),
    (loaders._MultiProcessingDataLoaderIter, "__init__"),
]  # fmt: skip
HOOKS = [
    (modules, "_global_forward_hooks"), (modules, "_global_forward_pre_hooks"),
    (modules, "_global_forward_hooks_always_called"), (optimizers, "_global_optimizer_pre_hooks"),
]  # fmt: skip


@pytest.fixture
def undone(monkeypatch):
    """Whatever a test changes of torch is as it was after it."""
    for owner, name in CHANGED:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    for owner, name in HOOKS:
        hooks = getattr(owner, name)
        monkeypatch.setattr(owner, name, type(hooks)(hooks))
    threads = torch.get_num_threads()
    yield
    monkeypatch.undo()
    torch.set_num_threads(threads)
