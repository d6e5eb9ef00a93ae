"""Giving back what a failed try has left behind."""

import gc

import torch


def release_memory(device: torch.device, thoroughly: bool = True) -> None:
    """To be called outside ``except``: there the exception keeps the failed computation alive.

    What a failed step leaves in cycles is young; looking through all of Python's objects takes longer than many a step.
    """
    gc.collect(2 if thoroughly else 1)
    if device.type == "cuda":
        torch.cuda.empty_cache()
