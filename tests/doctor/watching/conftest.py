import builtins
import io
import os
import shutil
import tempfile

import pytest
import safetensors.torch
import torch
from torch.optim import Optimizer
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as loaders
from torch.utils.data._utils import fetch

HOOKED = [
    (builtins, ["open"]),
    (io, ["open"]),
    (os, ["stat", "lstat", "access", "readlink", "listdir", "scandir", "open", "mkdir", "remove", "unlink", "rmdir"]),
    (os, ["rename", "replace", "chmod", "utime", "chown", "setxattr", "truncate", "symlink", "link"]),
    (os, ["listxattr", "getxattr", "statvfs", "chdir", "getcwd"]),
    (shutil, ["rmtree"]),
    (tempfile._TemporaryFileCloser.close, ["__defaults__"]),
    (torch, ["save", "load"]),
    (safetensors, ["safe_open"]),
    (safetensors.torch, ["save_file", "save_model", "safe_open"]),
    (torch.autograd, ["backward"]),
    (torch.autograd.profiler.profile, ["__init__"]),
    (Optimizer, ["zero_grad"]),
    (DataLoader, ["__init__", "__iter__", "_get_iterator"]),
    (loaders._BaseDataLoaderIter, ["__next__"]),
    (loaders._MultiProcessingDataLoaderIter, ["_shutdown_workers"]),
    (fetch._BaseDatasetFetcher, ["__init__"]),
    (fetch._MapDatasetFetcher, ["fetch"]),
    (fetch._IterableDatasetFetcher, ["fetch"]),
]  # fmt: skip


@pytest.fixture
def unhooked(monkeypatch):
    """Whatever a test hooks into torch and Python is undone after it."""
    for owner, names in HOOKED:
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
    for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        hooks = getattr(optimizers, name)
        monkeypatch.setattr(optimizers, name, type(hooks)(hooks))
