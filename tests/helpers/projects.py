"""A user's project: a file with a function that builds a training, and a configuration that names it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRAIN = """\
import torch
from torch import nn


def build(hidden: int = 4, samples: int = 40, noise=0.1):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(samples, 3, generator=generator)
    y = x.sum(1, keepdim=True) + noise * torch.randn(samples, 1, generator=generator)
    model = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, 1))
    return {"model": model, "train_data": (x, y), "eval_data": (x[:10], y[:10]), "loss_fn": nn.MSELoss()}
"""
CONFIG = """\
workload: train.py:build
train_ds: {batch_size: 8}
trainer: {epochs: 2, lr: 0.05, device: cpu, threads: 1}
"""


def write_project(folder: Path, code: str = TRAIN, config: str = CONFIG) -> Path:
    """Write train.py and my.yaml."""
    (folder / "train.py").write_text(code)
    (folder / "my.yaml").write_text(config)
    return folder


@contextmanager
def fresh_imports() -> Iterator[None]:
    """Modules that are imported meanwhile, and folders they are looked for in, are forgotten afterwards."""
    modules, path = set(sys.modules), list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if getattr(sys.modules[name], "__file__", None) is None or "/pytest-" in str(sys.modules[name].__file__):
                del sys.modules[name]
