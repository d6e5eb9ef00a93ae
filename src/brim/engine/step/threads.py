"""How many CPU threads a run computes with, found by timing its own first steps."""

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

from brim.data import Batch
from brim.engine.step.step_result import StepResult
from brim.hardware import usable_cores

ROUNDS, MOST_ROUNDS = 5, 60
TRIAL_SECONDS = 1.0  # a lull of a busy machine is shorter than this
HOPELESS = 1.5  # a candidate this much slower than the best is not tried again
WORTH_IT = 0.9  # more threads must gain at least a tenth: where cores are shared they can cost many times that

StepLike = Callable[[Sequence[Batch]], StepResult]


def thread_candidates(cores: int) -> list[int]:
    """One, half and all of the cores, without repetition.

    >>> thread_candidates(2), thread_candidates(16)
    ([1, 2], [1, 8, 16])
    """
    return sorted({1, max(1, cores // 2), cores})


def fastest(times: dict[int, list[float]]) -> int:
    """The thread count with the best median time; fewer threads win a tie, since other work shares the cores."""
    best = min(times)
    for threads in sorted(times):
        if median(times[threads]) < WORTH_IT * median(times[best]):
            best = threads
    return best


def with_threads(step: StepLike, threads: int | None, decided: Callable[[int, dict[int, float]], None]) -> StepLike:
    """``step`` with ``threads`` threads; with None, a step that finds out how many and tells ``decided``."""
    candidates = thread_candidates(usable_cores())
    if threads is None and len(candidates) > 1:
        return ThreadTrial(step, candidates, decided)
    torch.set_num_threads(threads or 1)
    return step


class ThreadTrial:
    """A step that tries thread counts in turn while it trains, then keeps the fastest.

    These are ordinary training steps, so nothing is lost but the time of the slower candidates. Two threads on two busy
    cores can be ten times slower than one, because each waits for the other at every operator.
    """

    def __init__(self, step: StepLike, candidates: list[int], decided: Callable[[int, dict[int, float]], None]) -> None:
        self.step = step
        self.decided = decided
        self.times: dict[int, list[float]] = {threads: [] for threads in candidates}
        self.schedule = [threads for _ in range(MOST_ROUNDS) for threads in candidates]
        self.began = time.perf_counter()

    def __call__(self, window: Sequence[Batch]) -> StepResult:
        if not self.schedule:
            return self.step(window)
        threads = self.schedule[0]
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
            return self.step(window)  # the first step after a switch starts threads: not timed
        began = time.perf_counter()
        result = self.step(window)
        self._note(threads, time.perf_counter() - began)
        return result

    def _note(self, threads: int, seconds: float) -> None:
        self.times[threads].append(seconds)
        self.schedule.pop(0)
        best = min(min(times) for times in self.times.values() if times)
        self.schedule = [n for n in self.schedule if not self.times[n] or min(self.times[n]) < HOPELESS * best]
        rivals = set(self.schedule)
        tried_enough = all(len(self.times[n]) >= ROUNDS for n in rivals)
        if len(rivals) <= 1 or (tried_enough and time.perf_counter() - self.began >= TRIAL_SECONDS):
            self._decide()

    def _decide(self) -> None:
        self.schedule = []
        tried = {threads: times for threads, times in self.times.items() if times}
        choice = fastest(tried)
        torch.set_num_threads(choice)
        self.decided(choice, {threads: median(times) for threads, times in tried.items()})
