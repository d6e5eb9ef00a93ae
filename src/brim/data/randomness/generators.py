"""Random generators: where they stand, whether somebody drew from them, and how they are put back."""

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from brim.data.randomness.order import GOLDEN, mix64

GENERATORS = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)


def state_of(generator: Any) -> Any:
    """The state of one of :data:`GENERATORS`, for :func:`set_state`."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return copy.deepcopy(getattr(generator, "bit_generator", generator).state)


def set_state(generator: Any, state: Any) -> None:
    """Put a generator back to a state of :func:`state_of`."""
    if isinstance(generator, random.Random):
        generator.setstate((state[0], tuple(state[1]), state[2]))
    elif isinstance(generator, torch.Generator | np.random.RandomState):
        generator.set_state(state)
    else:
        getattr(generator, "bit_generator", generator).state = state


def plain_state(generator: Any) -> Any:
    """The state of one of :data:`GENERATORS`, as plain data that a checkpoint may hold."""
    return _without_arrays(state_of(generator))


def set_plain_state(generator: Any, state: Any) -> None:
    """Go back to :func:`plain_state`."""
    set_state(generator, _with_arrays(state))


def _without_arrays(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _without_arrays(value) for key, value in state.items()}
    if isinstance(state, tuple):  # Python's words
        return [_without_arrays(value) for value in state]
    return {"table": state.tolist(), "dtype": str(state.dtype)} if isinstance(state, np.ndarray) else state


def _with_arrays(state: Any) -> Any:
    if isinstance(state, dict):
        if state.keys() == {"table", "dtype"}:
            return np.array(state["table"], dtype=state["dtype"])
        return {key: _with_arrays(value) for key, value in state.items()}
    return state


def mark_of(generator: Any) -> Any:
    """A value that is equal before and after if nothing was drawn from the generator in between."""
    state = state_of(generator)
    if isinstance(state, torch.Tensor):
        return state.numpy().tobytes()
    return state if isinstance(state, tuple) else repr(state)


@dataclass(frozen=True, eq=False)
class PythonGenerators:
    """Where the generators stand that Python's ``random`` and ``numpy.random`` draw from."""

    python: Any
    numpy: Any

    @classmethod
    def now(cls) -> "PythonGenerators":
        return cls(random.getstate(), np.random.get_state(legacy=False))

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)

    def marks(self) -> tuple[Any, ...]:
        words = self.numpy["state"]
        return self.python, words["key"].tobytes(), words["pos"], self.numpy["has_gauss"]


def host_marks() -> tuple[Any, ...]:
    """A value that is equal before and after if nothing was drawn on the host in between: by Python, numpy, torch."""
    return torch.get_rng_state().numpy().tobytes(), *PythonGenerators.now().marks()


@contextmanager
def process_generators() -> Iterator[None]:
    """Put the generators of the process back afterwards, those of all GPUs in use among them, also after an error."""
    others, of_torch = PythonGenerators.now(), torch.get_rng_state()
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        yield
    except BaseException:
        # A device that an error has stopped for good takes no state any more, and what is told is that error.
        with suppress(RuntimeError):
            _put_back(others, of_torch, on_gpus)
        raise
    _put_back(others, of_torch, on_gpus)


def _put_back(others: PythonGenerators, of_torch: torch.Tensor, on_gpus: list[torch.Tensor]) -> None:
    others.restore()
    torch.set_rng_state(of_torch)
    if on_gpus:
        torch.cuda.set_rng_state_all(on_gpus)


def generator_states(device: torch.device) -> dict[str, Any]:
    """The random generators a step may draw from, as plain data that a checkpoint may hold."""
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


def restore_generators(states: dict[str, Any], device: torch.device) -> None:
    """Go back to :func:`generator_states`."""
    torch.set_rng_state(states["torch"])
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    kind, numpy_words, *rest = states["numpy"]
    np.random.set_state((kind, np.array(numpy_words, dtype=np.uint32), *rest))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def seed_rank(seed: int, rank: int) -> None:
    """Random numbers of a rank's own: with the first rank's, all would drop the same neurons."""
    if rank:
        key = mix64(mix64(seed + GOLDEN) + rank * GOLDEN)
        torch.manual_seed(key >> 1)
        random.seed(key)
        np.random.seed(key & 0xFFFFFFFF)
