"""torch's process-wide switches, set while a run lasts and put back afterwards."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from brim.data.randomness.generators import process_generators
from brim.float32_products import float32_products


@contextmanager
def training_environment(seed: int, deterministic: bool, tf32: bool | None) -> Iterator[None]:
    """Seed the generators, and switch determinism on, and TF32 on or off, for those who asked by name; else they stand.

    Afterwards the generators stand where they stood: what the program draws next, such as the weights of another model,
    is what it would have drawn without the run.
    """
    with process_generators(), float32_products(tf32), _switches(seed, deterministic):
        yield


@contextmanager
def _switches(seed: int, deterministic: bool) -> Iterator[None]:
    threads = torch.get_num_threads()
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS refuses determinism without it
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(was_deterministic, warn_only=only_warned)
