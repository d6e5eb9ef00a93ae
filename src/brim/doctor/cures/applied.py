"""Applies cures before a script begins."""

import torch

from brim.doctor.cures.batched_columns import fetch_columns_at_once
from brim.doctor.cures.first_step import freeze_garbage_at_first_step, fuse_at_first_step
from brim.doctor.cures.loader_settings import set_loaders
from brim.doctor.cures.precision import compute_in_bf16, multiply_in_tf32
from brim.doctor.order import Cures


def apply_cures(cures: Cures) -> None:
    """Change how this process makes loaders and optimizers."""
    if cures.threads is not None:
        _hold_threads(cures.threads)
    if cures.batched_access:
        fetch_columns_at_once()
    if (cures.num_workers, cures.persistent_workers, cures.prefetch_factor) != (None, None, None):
        set_loaders(cures)
    if cures.fused_optimizer:
        fuse_at_first_step()
    if cures.freeze_garbage:
        freeze_garbage_at_first_step()
    if cures.tf32:
        multiply_in_tf32()
    if cures.bf16:
        compute_in_bf16()


def _hold_threads(count: int) -> None:
    """Set the number of threads, whatever the script sets afterwards."""
    torch.set_num_threads(count)
    torch.set_num_threads = lambda nthreads: None
