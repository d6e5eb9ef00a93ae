"""What a run's peak of reserved memory adds up from: steps, data on the card, captured steps, evaluations."""

STEPS = "steps"
RESIDENT = "resident data"
CAPTURED = "captured steps"
EVALUATION = "evaluation"


class MemoryParts:
    """By how much each part of a run raised the peak: so they add up to it, in whatever order they came.

    >>> parts = MemoryParts()
    >>> parts.raise_to(100)
    >>> before = parts.enter(EVALUATION)
    >>> parts.raise_to(130)
    >>> parts.leave(before)
    >>> parts.raise_to(120)
    >>> parts.sizes
    {'steps': 100, 'evaluation': 30}
    """

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.peak = 0
        self._now = STEPS

    def raise_to(self, peak: int) -> None:
        """This much was reserved at most, while the part that was entered last ran."""
        if peak > self.peak:
            self.sizes[self._now] = self.sizes.get(self._now, 0) + peak - self.peak
            self.peak = peak

    def enter(self, part: str) -> str:
        """What is raised from here on is this part's; the answer is the part before it, to go back to."""
        before, self._now = self._now, part
        return before

    def leave(self, before: str) -> None:
        self._now = before

    def beside(self, resident: int) -> dict[str, int]:
        """The parts, with the data that the steps have found on the card told apart from them."""
        steps = self.sizes.get(STEPS, 0)
        resident = min(resident, steps)
        named = {STEPS: steps - resident, RESIDENT: resident}
        return {name: size for name, size in {**named, **_without_steps(self.sizes)}.items() if size}


def _without_steps(sizes: dict[str, int]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if name != STEPS}
