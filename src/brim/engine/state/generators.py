"""The states of the random generators, as plain data."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from brim.data.randomness.order import GOLDEN, mix64


def generator_states(device: torch.device) -> dict[str, Any]:
    """The random generators a step may draw from."""
    version, words, gauss = random.getstate()
    kind, numpy_words, *rest = np.random.get_state(legacy=True)
    states: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": [version, list(words), gauss],
        "numpy": [str(kind), np.asarray(numpy_words).tolist(), *rest],
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def seed_rank(seed: int, rank: int) -> None:
    """Random numbers of a rank's own: with the first rank's, all would drop the same neurons."""
    if rank:
        key = mix64(mix64(seed + GOLDEN) + rank * GOLDEN)
        torch.manual_seed(key >> 1)
        random.seed(key)
        np.random.seed(key & 0xFFFFFFFF)


def restore_generators(states: dict[str, Any], device: torch.device) -> None:
    torch.set_rng_state(states["torch"])
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    kind, numpy_words, *rest = states["numpy"]
    np.random.set_state((kind, np.array(numpy_words, dtype=np.uint32), *rest))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


@contextmanager
def process_generators() -> Iterator[None]:
    """Put the generators of the process back afterwards, those of all GPUs in use among them, also after an error."""
    drawn, numpys, torchs = random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        random.setstate(drawn)
        np.random.set_state(numpys)
        torch.set_rng_state(torchs)
        if on_gpus:
            torch.cuda.set_rng_state_all(on_gpus)
