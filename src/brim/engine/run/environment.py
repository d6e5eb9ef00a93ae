"""torch's process-wide switches, set while a run lasts and put back afterwards."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from brim.data.randomness.generators import process_generators


@contextmanager
def training_environment(seed: int, deterministic: bool, tf32: bool) -> Iterator[None]:
    """Seed the generators, and switch determinism and TF32 on for those who asked by name.

    Afterwards the generators stand where they stood: what the program draws next, such as the weights of another model,
    is what it would have drawn without the run.
    """
    with process_generators(), _switches(seed, deterministic, tf32):
        yield


@contextmanager
def _switches(seed: int, deterministic: bool, tf32: bool) -> Iterator[None]:
    threads = torch.get_num_threads()
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    had_tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS refuses determinism without it
        torch.use_deterministic_algorithms(True)
    if tf32:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(was_deterministic)
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = had_tf32
