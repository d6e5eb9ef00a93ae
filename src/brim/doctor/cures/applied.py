"""Applies cures before a script begins."""

import torch

from brim.doctor.cures.anomaly_detection import switch_off_anomaly_detection
from brim.doctor.cures.batch_moves import BatchMoves
from brim.doctor.cures.batched_columns import fetch_columns_at_once
from brim.doctor.cures.compiled import compile_after_first_step
from brim.doctor.cures.device_prefetch import CopiesAhead, take_batches_ahead
from brim.doctor.cures.first_step import freeze_garbage_at_first_step, fuse_at_first_step
from brim.doctor.cures.loader_settings import change_loaders, keep_garbage_from_workers, set_loaders
from brim.doctor.cures.pinned_copies import CopiesWithoutWaiting
from brim.doctor.cures.precision import compute_in_bf16, multiply_in_tf32
from brim.doctor.cures.resident_data import ResidentColumns
from brim.doctor.cures.side_stream import SideStream
from brim.doctor.order import Cures


def apply_cures(cures: Cures) -> None:
    """Change how this process makes loaders and optimizers, copies batches, and computes."""
    if cures.threads is not None:
        _hold_threads(cures.threads)
    _feed_a_device(cures)
    if change_loaders(cures):
        set_loaders(cures)
    if cures.fused_optimizer:
        fuse_at_first_step()
    if cures.freeze_garbage:
        freeze_garbage_at_first_step()
    if cures.no_anomaly_detection:
        switch_off_anomaly_detection()
    if cures.compile:
        compile_after_first_step(cures.bf16)
    if cures.tf32:
        multiply_in_tf32()
    if cures.bf16:
        compute_in_bf16()


def _feed_a_device(cures: Cures) -> None:
    """How batches are made, and how they come to a device."""
    moves, stream = BatchMoves(), SideStream()
    if cures.batched_access or cures.resident_data:
        fetch_columns_at_once(ResidentColumns(moves) if cures.resident_data else None)
    if cures.pinned_copies:
        CopiesWithoutWaiting().install(moves)
    if cures.device_prefetch:
        CopiesAhead(moves, stream).install()
    if cures.pinned_copies or cures.device_prefetch or cures.resident_data:
        moves.install()
        keep_garbage_from_workers()
    if cures.device_prefetch:
        take_batches_ahead()


def _hold_threads(count: int) -> None:
    """Set the number of threads, whatever the script sets afterwards."""
    torch.set_num_threads(count)
    torch.set_num_threads = lambda nthreads: None
