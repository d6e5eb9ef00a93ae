"""Random numbers that belong to the data: drawn from a key of their own, and the process gets its generators back."""

import _random
import ctypes
import random
from functools import cache
from typing import Any

import numpy as np
import torch

WORD = ctypes.sizeof(ctypes.c_uint32)
NUMPY_WORDS = 624
PYTHON: Any = random._inst


class seeded:
    """Random numbers from ``key`` on; ``restore`` gives the process its own back, whose draws belong to the model.

    Entered for every batch, so it calls the generators below Python's wrappers around them.
    """

    __slots__ = ("key", "numpy", "own", "restore", "torch")

    def __init__(self, key: int, restore: bool) -> None:
        self.key = key
        self.restore = restore

    def __enter__(self) -> None:
        if self.restore:
            self.torch, self.own = torch.default_generator.get_state(), _own_states()
            self.numpy = np.random.get_bit_generator()  # type: ignore[attr-defined]
            np.random.set_bit_generator(_spare_numpy_generator())  # type: ignore[attr-defined]
        torch.default_generator.manual_seed(self.key >> 1)  # torch.manual_seed would reseed GPUs as well
        _random.Random.seed(PYTHON, self.key)
        PYTHON.gauss_next = None
        np.random.seed(self.key & 0xFFFFFFFF)

    def __exit__(self, *_: object) -> None:
        if not self.restore:
            return
        torch.default_generator.set_state(self.torch)
        _, words, PYTHON.gauss_next = self.own.python
        _random.Random.setstate(PYTHON, words)
        np.random.set_bit_generator(self.numpy)  # type: ignore[attr-defined]
        # Where it is the spare one itself (a loader inside a data set), or was between the two normal numbers that it
        # draws at a time, which swapping makes it forget.
        if self.numpy is _spare_numpy_generator() or self.own.numpy["has_gauss"]:
            np.random.set_state(self.own.numpy)


def generator_states() -> tuple[Any, ...]:
    """The states of the generators that a data set may draw from, to be compared."""
    numpys: Any = np.random.get_state(legacy=False)
    words = numpys["state"]["key"].tobytes(), numpys["state"]["pos"], numpys["has_gauss"]
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), words


def draw_marks() -> tuple[Any, ...]:
    """The same in less time: what changes whenever one of the generators is drawn from."""
    marks = _marks()
    return generator_states() if marks is None else (torch.get_rng_state().numpy().tobytes(), marks)


class _States:
    """Python's and numpy's states. Reading them takes 60 us, so they are kept until somebody draws."""

    def __init__(self) -> None:
        self.python = random.getstate()
        self.numpy: Any = np.random.get_state(legacy=False)
        self.marks = _marks()

    def are_current(self) -> bool:
        # Between the two normal numbers that numpy draws at a time, the second is taken without leaving a mark.
        return self.marks is not None and not self.numpy["has_gauss"] and self.marks == _marks()


_kept: _States | None = None


def _own_states() -> _States:
    global _kept
    if _kept is None or not _kept.are_current():
        _kept = _States()
    return _kept


def _marks() -> tuple[Any, ...] | None:
    """What changes whenever Python's or numpy's generator is drawn from or seeded; None where it cannot be seen.

    Both are Mersenne twisters: a position, which each draw moves on, in a table of words, which seeding and every 624th
    draw replace. They are read where they lie; the first time it is checked that they lie where they should.
    """
    numpys = np.random.get_bit_generator()  # type: ignore[attr-defined]
    if type(numpys) is not np.random.MT19937 or not _lie_as_expected():
        return None
    python, table = _python_table(), _numpy_table(numpys)
    return (
        ctypes.c_int.from_address(python).value,
        ctypes.c_uint64.from_address(python + 2 * WORD).value,
        PYTHON.gauss_next,
        id(numpys),
        ctypes.c_int.from_address(table + NUMPY_WORDS * WORD).value,
        ctypes.c_uint64.from_address(table + 2 * WORD).value,
    )


def _python_table() -> int:
    return id(PYTHON) + object.__basicsize__


def _numpy_table(generator: Any) -> int:
    address: int = generator.ctypes.state_address
    return address


@cache
def _lie_as_expected() -> bool:
    """Whether the tables can be read in place: a CPython and numpy with the layout that is known here."""
    try:
        python, numpys = random.getstate()[1], np.random.get_state(legacy=False)
        assert isinstance(numpys, dict)
        own, table = _python_table(), _numpy_table(np.random.get_bit_generator())  # type: ignore[attr-defined]
        as_words = (ctypes.c_uint32 * (NUMPY_WORDS + 1)).from_address(own)
        return (
            tuple(as_words[1:]) == tuple(python[:-1])
            and as_words[0] == python[-1]
            and list((ctypes.c_uint32 * NUMPY_WORDS).from_address(table)) == numpys["state"]["key"].tolist()
            and ctypes.c_int.from_address(table + NUMPY_WORDS * WORD).value == numpys["state"]["pos"]
        )
    except (AttributeError, TypeError, ValueError, KeyError):
        return False


@cache
def _spare_numpy_generator() -> np.random.MT19937:
    """Put in the place of numpy's own: loading that one's state again takes 35 us, and making one 90."""
    return np.random.MT19937(0)
