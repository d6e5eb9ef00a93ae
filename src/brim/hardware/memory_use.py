"""How much memory this process holds now, as cheaply as it can be asked."""

import os
from pathlib import Path

import torch

PROCESS_PAGES = Path("/proc/self/statm")


def memory_in_use(device: torch.device) -> dict[str, float]:
    """Bytes by name: what torch has allocated and reserved on a GPU, or what the process holds in RAM."""
    if device.type == "cuda":
        return {
            "memory_allocated": torch.cuda.memory_allocated(device),
            "memory_reserved": torch.cuda.memory_reserved(device),
        }
    try:
        resident_pages = int(PROCESS_PAGES.read_text().split()[1])
    except (OSError, ValueError, IndexError):  # not Linux
        return {}
    return {"memory_process": resident_pages * os.sysconf("SC_PAGE_SIZE")}
