"""How busy a GPU is, as one number."""

import os
import re
from contextlib import closing
from typing import TYPE_CHECKING

from brim.errors import ConfigError
from brim.sensors.gpu_reading import GpuSource
from brim.sensors.gpus import open_gpus

if TYPE_CHECKING:
    import torch

DEVICE = re.compile(r"cuda(?::(\d+))?|(\d+)", re.ASCII)


def get_gpu_utilization(device: "int | str | torch.device | None" = None) -> int | None:
    """The percentage of time in which any kernel ran on a GPU, over the driver's last period of up to a second.

    A duty cycle, as ``nvidia-smi`` shows it: one small kernel that never ends gives 100. What the card really does is
    shown by ``brim watch``.

    Args:
        device: which GPU, as torch counts them (``CUDA_VISIBLE_DEVICES`` is obeyed): 1, ``"cuda:1"`` or a
            ``torch.device``; the first one, unless given.

    Returns:
        A whole number from 0 to 100, or None where there is no such GPU, or it does not tell.

    >>> get_gpu_utilization(device=10_000) is None
    True
    """
    number = _number_of(device)
    source, _ = open_gpus()
    if source is None or number is None:
        return None
    with closing(source):
        return visible_utilization(source, os.environ.get("CUDA_VISIBLE_DEVICES"), number)


def _number_of(device: "int | str | torch.device | None") -> int | None:
    """Which of the visible GPUs is meant; None for a device that is no GPU."""
    named = "cuda" if device is None else str(device)
    found = None if isinstance(device, bool) else DEVICE.fullmatch(named)
    if found is not None:
        return int(found[1] or found[2] or 0)
    if named.partition(":")[0] in ("cpu", "mps", "meta", "xpu"):
        return None
    raise ConfigError(f"device={device!r} is not a GPU; use a number, or 'cuda:0'")


def visible_utilization(source: GpuSource, visible: str | None, number: int) -> int | None:
    """The duty cycle of the GPU that CUDA shows this process as ``number``."""
    gpus = source.utilization()
    shown = list(range(len(gpus))) if visible is None else _shown(visible, [uuid for uuid, _ in gpus])
    return gpus[shown[number]][1] if number < len(shown) else None


def _shown(visible: str, uuids: list[str]) -> list[int]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, by numbers or by beginnings of UUIDs, up to the first that is none."""
    found: list[int] = []
    for word in (part.strip() for part in visible.split(",")):
        if word.isascii() and word.isdigit():
            places = [int(word)] if int(word) < len(uuids) else []
        else:
            places = [place for place, uuid in enumerate(uuids) if word and uuid.startswith(word)]
        if len(places) != 1:
            break
        found += places
    return found
