"""Random numbers that belong to the data: drawn from a key of their own, and the process gets its generators back."""

import ctypes
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from brim.data.randomness.generators import host_marks, mark_of
from brim.data.randomness.python_generator import PythonGeneratorState

WORD = ctypes.sizeof(ctypes.c_uint32)
NUMPY_WORDS = 624


def seed_host(key: int) -> None:
    """Let the host's generators draw from ``key`` on. torch.manual_seed would reseed GPUs as well."""
    torch.default_generator.manual_seed(key >> 1)
    random.seed(key)
    np.random.seed(key & 0xFFFFFFFF)


class Seeding:
    """Lets data draw from keys, batch after batch, and the process its own numbers, which belong to the model.

    One is kept for all batches of a source: it remembers numpy's state, which takes 35 us to read and as long to set,
    until somebody draws from it.

    >>> seeding = Seeding()
    >>> with seeding.draw_from(7):
    ...     first = random.random()
    >>> with seeding.draw_from(7):
    ...     first == random.random()
    True
    """

    def __init__(self) -> None:
        self._spare: Any = None  # put in the place of numpy's own; made once, which takes 90 us
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
    """Reads where the generators of the process stand, those of Python and numpy only where somebody has drawn."""

    def __init__(self) -> None:
        self._python = PythonGeneratorState()
        self._bits: NumpyBits | None = None
        self._numpy: Any = None
        self._marks: tuple[int, int] | None = None

    def take(self) -> Before:
        """The state of now; whoever takes it must restore it, since Python's generator has moved on."""
        bits = np.random.get_bit_generator()  # type: ignore[attr-defined]
        return Before(torch.default_generator.get_state(), self._python.take(), self._numpy_state(bits), bits)

    def _numpy_state(self, bits: Any) -> Any:
        if self._bits is None or bits is not self._bits.generator:
            self._bits = NumpyBits(bits)
            self._numpy = None
        marks = self._bits.marks()
        # Between the two normal numbers that numpy draws at a time, the second is taken without leaving a mark.
        if self._numpy is None or self._numpy["has_gauss"] or marks is None or marks != self._marks:
            self._numpy, self._marks = np.random.get_state(legacy=False), marks
        return self._numpy


def seeded(key: int, restore: bool = True) -> Any:
    """Random numbers from ``key`` on, once; unless ``restore``, for good."""
    if restore:
        return Seeding().draw_from(key)
    seed_host(key)
    return nullcontext()


def draw_marks() -> tuple[Any, ...]:
    """:func:`host_marks` in less time."""
    bits = np.random.get_bit_generator()  # type: ignore[attr-defined]
    marks = NumpyBits(bits).marks()
    return host_marks() if marks is None else (mark_of(torch.default_generator), random.getstate(), id(bits), *marks)


class NumpyBits:
    """Shows whether one of numpy's generators has been drawn from, in less time than it takes to read its state.

    A Mersenne twister: a position, which each draw moves on, in a table of words, which seeding and every 624th draw
    replace. numpy says where it lies (``BitGenerator.ctypes``, which is public); the first time it is checked that it
    is what is known here. Reading the state itself for each batch makes the step of a tiny model a tenth slower.
    """

    def __init__(self, generator: Any) -> None:
        self.generator = generator
        self._views: tuple[ctypes.c_int, ctypes.c_uint64] | None = None
        if type(generator) is np.random.MT19937 and _lies_as_expected():
            table = generator.ctypes.state_address
            position = ctypes.c_int.from_address(table + NUMPY_WORDS * WORD)
            self._views = position, ctypes.c_uint64.from_address(table + 2 * WORD)

    def marks(self) -> tuple[int, int] | None:
        """What changes whenever it is drawn from or seeded; None where that cannot be seen."""
        return None if self._views is None else (self._views[0].value, self._views[1].value)


@cache
def _lies_as_expected() -> bool:
    bits = np.random.MT19937(1)
    table, state = bits.ctypes.state_address, bits.state["state"]
    words = list((ctypes.c_uint32 * NUMPY_WORDS).from_address(table))
    position = ctypes.c_int.from_address(table + NUMPY_WORDS * WORD).value
    return bool(words == state["key"].tolist() and position == state["pos"])
