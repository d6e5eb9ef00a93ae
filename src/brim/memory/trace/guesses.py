"""Answers to what a program asks of data that nobody has: always the same, until it seems to wait for another one."""

from collections import Counter
from typing import Any

from brim.errors import ModelError
from brim.user_line import line_of_job

PATIENCE = 1000  # how often a line is told the same: a batch may be looked at row by row
OF_FLOATS = 100  # an integrator halves its step each time, and shall not come to one of 0
TURN = 100  # how often it is told another answer, before that is changed too
MOST = 20_000
OTHERS: dict[type, tuple[Any, ...]] = {bool: (True, False), int: (0, 2), float: (0.0, 1.0, 1e6, -1e6)}


class Guesses:
    """How often each line has asked in this pass: a loop until convergence shall end in a forecast as well.

    >>> Guesses().answer(0.5)
    0.5
    """

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()

    def begin_pass(self) -> None:
        self._asked.clear()

    def answer(self, usual: Any) -> Any:
        """What a line is told that would usually be told ``usual``.

        Raises:
            ModelError: where no answer makes it stop asking.
        """
        at = line_of_job()
        self._asked[at] += 1
        beyond = self._asked[at] - (OF_FLOATS if type(usual) is float else PATIENCE)
        if beyond <= 0 or type(usual) not in OTHERS:
            return usual
        if beyond > MOST:
            raise ModelError(
                f"{at} asks for a number that only the data knows, over and over, so when it stops cannot be forecast; "
                "give the loop a largest number of rounds"
            )
        others = OTHERS[type(usual)]
        return others[(beyond - 1) // TURN % len(others)]
