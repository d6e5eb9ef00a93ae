"""Random numbers that belong to the data: drawn from a key of their own, and the process gets its generators back."""

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch

from brim.data.randomness.python_generator import PythonGeneratorState


def seed_host(key: int) -> None:
    """Let the host's generators draw from ``key`` on. torch.manual_seed would reseed GPUs as well."""
    torch.default_generator.manual_seed(key >> 1)
    random.seed(key)
    np.random.seed(key & 0xFFFFFFFF)


class Seeding:
    """Lets data draw from keys, batch after batch, and the process its own numbers, which belong to the model.

    One is kept for all batches of a source: what it puts in the place of numpy's generator takes 90 us to make.

    >>> seeding = Seeding()
    >>> with seeding.draw_from(7):
    ...     first = random.random()
    >>> with seeding.draw_from(7):
    ...     first == random.random()
    True
    """

    def __init__(self) -> None:
        self._spare: Any = None  # put in the place of numpy's own
        self._process = ProcessState()

    @contextmanager
    def draw_from(self, key: int) -> Iterator[None]:
        """Random numbers from ``key`` on, and afterwards those of before."""
        before = self._process.take()
        if before.bits is self._spare or self._spare is None:  # the first time, or within one another
            self._spare = np.random.MT19937(0)
        np.random.set_bit_generator(self._spare)  # type: ignore[attr-defined]
        seed_host(key)
        try:
            yield
        finally:
            before.restore()


class DataGenerators:
    """Generators that data draws from, in the place of those of the process, each time that it is entered.

    What is drawn follows on what was drawn the time before, as with generators that nobody else draws from; which takes
    less time than a key for each batch.

    >>> def draw_twice(generators: DataGenerators) -> list[float]:
    ...     with generators:
    ...         first = random.random()
    ...     random.random()  # of the process
    ...     with generators:
    ...         return [first, random.random()]
    >>> draw_twice(DataGenerators(7)) == draw_twice(DataGenerators(7))
    True
    """

    def __init__(self, key: int) -> None:
        self._process = ProcessState()
        self._python = PythonGeneratorState()
        self._before: Before | None = None
        with Seeding().draw_from(key):
            self._of_torch, self._of_python = torch.default_generator.get_state(), random.getstate()
            self._bits = np.random.get_bit_generator()  # type: ignore[attr-defined]

    def __enter__(self) -> None:
        self._before = self._process.take()
        torch.default_generator.set_state(self._of_torch)
        random.setstate(self._of_python)
        np.random.set_bit_generator(self._bits)  # type: ignore[attr-defined]

    def __exit__(self, *_: object) -> None:
        assert self._before is not None
        self._of_torch, self._of_python = torch.default_generator.get_state(), self._python.take()
        self._before.restore()


class Before(NamedTuple):
    """Where the generators of the process stood; ``bits``: numpy's own, which keep their place by themselves."""

    of_torch: torch.Tensor
    of_python: Any
    of_numpy: Any
    bits: Any

    def restore(self) -> None:
        torch.default_generator.set_state(self.of_torch)
        random.setstate(self.of_python)
        np.random.set_bit_generator(self.bits)  # type: ignore[attr-defined]
        if self.of_numpy["has_gauss"]:  # the second of two normal numbers, which swapping makes numpy forget
            np.random.set_state(self.of_numpy)


class ProcessState:
    """Reads where the generators of the process stand, that of Python only where somebody has drawn."""

    def __init__(self) -> None:
        self._python = PythonGeneratorState()

    def take(self) -> Before:
        """The state of now; whoever takes it must restore it, since Python's generator has moved on."""
        return Before(
            torch.default_generator.get_state(),
            self._python.take(),
            np.random.get_state(legacy=False),
            np.random.get_bit_generator(),  # type: ignore[attr-defined]
        )


def seeded(key: int, restore: bool = True) -> Any:
    """Random numbers from ``key`` on, once; unless ``restore``, for good."""
    if restore:
        return Seeding().draw_from(key)
    seed_host(key)
    return nullcontext()
