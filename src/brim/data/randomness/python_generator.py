"""The state of Python's generator, read only where somebody has drawn from it."""

import random
from typing import Any

WORDS, SHIFT, TOP, TWIST = 624, 397, 0x80000000, 0x9908B0DF  # of the Mersenne twister MT19937
GENERATOR: Any = random.random.__self__  # type: ignore[attr-defined]  # whose methods the module's functions are

State = tuple[Any, ...]


class PythonGeneratorState:
    """Knows the state at the last :meth:`take`. Reading it takes 8 us, and as long to let go of what was read.

    The next number tells whether it still holds: where the state gives another one, somebody has drawn since.
    Drawing that number moves the generator on, so whoever takes the state must put it back, or seed anew.
    """

    def __init__(self) -> None:
        self._state: State | None = None
        self._next = 0.0

    def take(self) -> State:
        """The state of now; the generator itself has moved on."""
        if self._state is None:
            return self._keep(random.getstate())
        if random.random() == self._next and GENERATOR.gauss_next == self._state[2]:
            return self._state
        return self._keep(state_before_draw(random.getstate()))

    def _keep(self, state: State) -> State:
        twin = random.Random()
        twin.setstate(state)
        self._state, self._next = state, twin.random()
        return state


def state_before_draw(state: State) -> State:
    """The state from which ``random.random()`` led to this one: it takes two words of the table.

    The table is made anew when its end is reached, so in the first two places it is the one before that is wanted.
    """
    version, (*words, place), gauss = state
    if place > 2:
        return version, (*words, place - 2), gauss
    return version, (*table_before(words), WORDS - 2 + place), gauss


def table_before(words: list[int]) -> list[int]:
    """The table that the twister made this one of. The lower bits of its first word, which are lost, decide nothing."""
    table = list(words)
    for place in reversed(range(WORDS)):
        upper = table[place] ^ table[(place + SHIFT) % WORDS]
        upper ^= TWIST if upper & TOP else 0
        lower = table[place - 1] ^ table[(place + SHIFT - 1) % WORDS]
        odd = bool(lower & TOP)
        lower ^= TWIST if odd else 0
        table[place] = (upper << 1) & TOP | (lower << 1) & (TOP - 1) | odd
    return table
