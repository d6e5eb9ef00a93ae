"""How many CPU threads a run computes with, found by timing its own first steps."""

import time
from collections.abc import Callable, Sequence
from statistics import fmean, median

import torch

from brim.data import Batch
from brim.engine.step.step_result import StepResult
from brim.hardware import usable_cores

ROUNDS, MOST_ROUNDS = 5, 8
TRIAL_SECONDS = 1.0  # a lull of a busy machine is shorter than this
# Steps in a row with one count, of which the mean is taken. Single steps mislead where other work shares the cores:
# threads that have slept meanwhile are let in first, and of two that wait for each other some steps are very slow.
BLOCK_SECONDS, LOOK_BLOCK_SECONDS, BLOCK_STEPS = 0.1, 0.03, 20
HOPELESS = 1.5  # a candidate this much slower than the best is not tried again
GIVE_UP = 4.0  # nor is a block finished whose steps are all this much slower
WORTH_IT = 0.9  # more threads must gain at least a tenth: where cores are shared they can cost many times that
LOOK_AFTER, LOOK_ROUNDS = 300, 3  # steps between two looks at least; how often a look times each candidate
LOOK_SHARE = 0.02  # of the time of training, at most, goes into looks: slow candidates are looked at less often

StepLike = Callable[[Sequence[Batch]], StepResult]


def thread_candidates(cores: int) -> list[int]:
    """One, half and all of the cores, without repetition.

    >>> thread_candidates(2), thread_candidates(16)
    ([1, 2], [1, 8, 16])
    """
    return sorted({1, max(1, cores // 2), cores})


def fastest(times: dict[int, list[float]]) -> int:
    """The thread count with the best median; fewer threads win a tie, since other work shares the cores."""
    best = min(times)
    for threads in sorted(times):
        if median(times[threads]) < WORTH_IT * median(times[best]):
            best = threads
    return best


def fastest_beside(times: dict[int, list[float]], current: int) -> int:
    """The same where ``current`` is computed with: another must gain a tenth, or chance would move it to and fro."""
    best = min(times, key=lambda threads: median(times[threads]))
    is_worth_it = current not in times or median(times[best]) < WORTH_IT * median(times[current])
    return best if is_worth_it else current


def steps_to_next_look(lost: float, step: float) -> int:
    """How many steps of ``step`` seconds make up for a look that lost ``lost`` seconds.

    >>> steps_to_next_look(lost=0.001, step=0.001), steps_to_next_look(lost=0.1, step=0.001)
    (300, 5000)
    """
    return max(LOOK_AFTER, round(lost / (LOOK_SHARE * step)))


def with_threads(
    step: StepLike, threads: int | None, decided: Callable[[int, dict[int, float]], None], is_adaptive: bool = False
) -> StepLike:
    """``step`` with ``threads`` threads; with None, a step that finds out how many and tells ``decided``.

    ``is_adaptive``: it looks again every so often, since what else computes on the machine comes and goes.
    """
    candidates = thread_candidates(usable_cores())
    if is_adaptive and len(candidates) > 1:
        return AdaptiveThreads(step, candidates, decided, threads)
    if threads is None and len(candidates) > 1:
        return ThreadTrial(step, candidates, decided)
    torch.set_num_threads(threads or 1)
    return step


class ThreadTrial:
    """A step that tries thread counts in turn while it trains, then keeps the fastest.

    These are ordinary training steps, so nothing is lost but the time of the slower candidates. Two threads on two busy
    cores can be ten times slower than one, because each waits for the other at every operator. With ``current`` it is a
    short look at whether that is still the fastest.
    """

    def __init__(
        self,
        step: StepLike,
        candidates: Sequence[int],
        decided: Callable[[int, dict[int, float]], None],
        current: int | None = None,
    ) -> None:
        self.step = step
        self.decided = decided
        self.current = current
        self.rounds, self.least_seconds = (ROUNDS, TRIAL_SECONDS) if current is None else (LOOK_ROUNDS, 0.0)
        self.block_seconds = BLOCK_SECONDS if current is None else LOOK_BLOCK_SECONDS
        self.block: list[float] = []
        self.times: dict[int, list[float]] = {threads: [] for threads in candidates}  # mean steps of blocks
        self.schedule = [threads for _ in range(MOST_ROUNDS) for threads in candidates]
        self.began = time.perf_counter()
        self.steps, self.seconds = 0, 0.0  # of all steps, those that are not timed for themselves among them

    def __call__(self, window: Sequence[Batch]) -> StepResult:
        if not self.schedule:
            return self.step(window)
        threads = self.schedule[0]
        is_switch = torch.get_num_threads() != threads
        if is_switch:
            torch.set_num_threads(threads)
        began = time.perf_counter()
        result = self.step(window)
        seconds = time.perf_counter() - began
        self.steps, self.seconds = self.steps + 1, self.seconds + seconds
        if not is_switch:  # the first step after a switch starts threads
            self.block.append(seconds)
            if self._is_block_over():
                self._note(threads, fmean(self.block))
        return result

    @property
    def is_trying(self) -> bool:
        """Whether steps are timed with other numbers of threads than those that are kept."""
        return bool(self.schedule)

    def _is_block_over(self) -> bool:
        best = min((min(times) for times in self.times.values() if times), default=float("inf"))
        is_long = sum(self.block) >= self.block_seconds or len(self.block) >= BLOCK_STEPS
        return is_long or min(self.block) >= GIVE_UP * best

    def lost(self, choice: int) -> float:
        """Seconds that the same steps would have taken less with ``choice`` threads."""
        return max(0.0, self.seconds - self.steps * median(self.times[choice]))

    def _note(self, threads: int, seconds: float) -> None:
        self.block = []
        self.times[threads].append(seconds)
        self.schedule.pop(0)
        best = min(min(times) for times in self.times.values() if times)
        self.schedule = [n for n in self.schedule if not self.times[n] or min(self.times[n]) < HOPELESS * best]
        rivals = set(self.schedule)
        tried_enough = all(len(self.times[n]) >= self.rounds for n in rivals)
        if len(rivals) <= 1 or (tried_enough and time.perf_counter() - self.began >= self.least_seconds):
            self._decide()

    def _decide(self) -> None:
        self.schedule = []
        tried = {threads: times for threads, times in self.times.items() if times}
        choice = fastest(tried) if self.current is None else fastest_beside(tried, self.current)
        torch.set_num_threads(choice)
        self.decided(choice, {threads: median(times) for threads, times in tried.items()})


class AdaptiveThreads:
    """A step that finds out how many threads it computes with, and looks again every so often: at most 2 % of the time.

    ``threads``: what an earlier run found, or None. ``decided`` is told of each change.
    """

    def __init__(
        self,
        step: StepLike,
        candidates: Sequence[int],
        decided: Callable[[int, dict[int, float]], None],
        threads: int | None = None,
    ) -> None:
        self.step = step
        self.candidates = candidates
        self.decided = decided
        self.threads = threads
        self._steps_left = LOOK_AFTER
        self._trial = ThreadTrial(step, candidates, self._settle) if threads is None else None
        if threads is not None:
            torch.set_num_threads(threads)

    def __call__(self, window: Sequence[Batch]) -> StepResult:
        if self._trial is not None:
            return self._trial(window)
        self._steps_left -= 1
        if self._steps_left <= 0:  # from the next step on
            self._trial = ThreadTrial(self.step, self.candidates, self._settle, self.threads)
        return self.step(window)

    @property
    def is_trying(self) -> bool:
        """As in :class:`ThreadTrial`."""
        return self._trial is not None

    def _settle(self, choice: int, times: dict[int, float]) -> None:
        assert self._trial is not None
        self._steps_left = steps_to_next_look(self._trial.lost(choice), times[choice])
        is_change, self.threads, self._trial = choice != self.threads, choice, None
        if is_change:
            self.decided(choice, times)
