"""The largest batch that trains within a limit."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from torch import Tensor

from brim.arguments.known import explained_call
from brim.errors import CannotFit, ModelError
from brim.hardware.cards import Card
from brim.memory.allocator.peak import find_peak
from brim.memory.context import libraries_of
from brim.memory.forecast import (
    Forecast,
    ModelLike,
    OptimizerMaker,
    Setting,
    forecast_trace,
    make_job,
    make_setting,
    precision_on,
    trace_on,
)
from brim.memory.planning.family import Line, TraceFamily, fits
from brim.memory.trace.steps import Batch, Job
from brim.model_blocks import BlockChoice
from brim.sizes import parse_memory, show_bytes

LARGEST = 1 << 21  # a batch beyond this says that the batch does not decide the memory
MARGIN = 0.01  # of the limit, left free for what the forecast does not see
FIRST, SECOND = 2, 6  # batch sizes at which the slope is first looked at
CLOSE_ENOUGH = 150  # good enough when the next size that fails is less than one part in so many away


@explained_call
def largest_batch(
    model: ModelLike,
    batch: Callable[[int], Batch],
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: OptimizerMaker | None = None,
    *,
    precision: str = "32",
    card: str | Card | None = None,
    memory: str | int | None = None,
    runtime: str | None = None,
    accumulation: int = 1,
    clip_norm: float | None = None,
    expandable_segments: bool | None = None,
    gpus: int = 1,
    strategy: str = "single",
    ema: float | None = None,
    logits: str = "whole",
    checkpointing: BlockChoice = None,
) -> int:
    """The largest batch size (of one GPU) whose training steps fit, with the arguments of `forecast`.

    Args:
        model, batch, loss, optimizer, precision, card, runtime, accumulation, clip_norm, expandable_segments, gpus,
            strategy, ema, logits, checkpointing: as for `forecast`.
        memory: what torch may reserve, as ``torch.cuda.set_per_process_memory_fraction`` limits it; by default the
            card's memory less the context.

    Raises:
        CannotFit: where not even one sample fits.

    >>> import torch
    >>> from torch import nn
    >>> largest_batch(lambda: nn.Linear(4096, 4096), lambda n: ((torch.empty(n, 4096),), {}), lambda out: out.sum(),
    ...               card="NVIDIA H200", memory="1GiB") > 10_000
    True
    """
    setting = make_setting(card, runtime, expandable_segments, gpus, strategy)
    named = precision_on(setting.card, precision)
    job = make_job(model, batch, loss, optimizer, named, accumulation, clip_norm, ema, logits, checkpointing)
    return Search(job, setting, None if memory is None else parse_memory(memory)).largest()


class Search:
    """The search for the largest batch: a slope, a guess, and replays of the allocator around it."""

    def __init__(self, job: Job, setting: Setting, limit: int | None, family: TraceFamily | None = None) -> None:
        self.job, self.setting = job, setting
        self.family = family or TraceFamily(lambda n: trace_on(job, n, setting))
        self._limit = limit

    @property
    def limit(self) -> int:
        if self._limit is not None:
            return self._limit
        context = self.setting.calibration.context_of(self.setting.card, *libraries_of(self.family.trace(FIRST)))
        return self.setting.card.memory - context.high

    @property
    def usable(self) -> int:
        return int(self.limit * (1 - MARGIN)) - self.setting.calibration.extra_reserved

    def fits(self, batch_size: int) -> bool:
        """By a trace of its own."""
        trace = self.family.trace(batch_size)
        return fits(trace.events, self.usable, self.setting.expandable, trace.optional)

    @cached_property
    def smallest(self) -> int:
        """The smallest batch size that runs: one sample is refused in training where a batch is normalised."""
        try:
            self.family.trace(1)
        except ModelError:
            self.family.trace(FIRST)
            return FIRST
        return 1

    def _that_runs(self, batch_size: int) -> int:
        return batch_size if batch_size > 1 else self.smallest

    def largest(self, at_most: int = LARGEST, seen: int = SECOND) -> int:
        """The largest batch size that fits, of at most so many samples; a size that was ``seen`` helps to guess."""
        good, bad = 0, at_most + 1
        guess = min(self._that_runs(self.beyond(FIRST, max(seen, SECOND), good, bad) or 1), at_most)
        while bad - good > 1:
            if self.fits(guess):
                good = guess
            else:
                bad = guess
            if good == 0 and bad <= FIRST:
                if bad <= self.smallest or not self.fits(self.smallest):
                    self._refuse()
                return self.smallest
            if bad - good <= good // CLOSE_ENOUGH:
                break
            better = self.beyond(self._that_runs(self.family.neighbour(guess)), guess, good, bad)
            if better == good and good:  # its neighbour does not fit either
                break
            guess = better if better is not None and good < better < bad else self._between(good, bad)
        return good

    def beyond(self, low: int, high: int, good: int, bad: int) -> int | None:
        """The largest size between good and bad that fits, by the line through two sizes; None where there is none."""
        line = self.family.line_through(low, high) if low < high else None
        at_most = bad
        if line is None:
            return self._by_slope(low, high)
        if good and not self._fits_on(line, good):  # it does: the job changed in between, and this line is no guide
            return None
        while bad - good > 1:
            middle = min((good + bad) // 2, max(good + 1, good * 2, high))
            if self._fits_on(line, middle):
                good = middle
            else:
                bad = middle
        if good < high:
            good = self._above(line, good, min(self._by_slope(low, high) or 0, at_most - 1))
        # Fragmentation has its moods: a size may fit where one below it does not.
        ahead = range(min(good + max(2, good // 25), at_most - 1), good, -max(1, good // 250))
        return next((size for size in ahead if self._fits_on(line, size)), good)

    def _above(self, line: Line, good: int, most: int) -> int:
        """A size that fits far above one that does: a storage of 2 MiB takes a segment of 20, one of 10 takes 10."""
        sizes = (most - most * part // 16 for part in range(8))
        return next((size for size in sizes if size > 2 * good and self._fits_on(line, size)), good)

    def _fits_on(self, line: Line, batch_size: int) -> bool:
        return fits(line.events_at(batch_size), self.usable, self.setting.expandable, line.optional)

    def _by_slope(self, low: int, high: int) -> int | None:
        """Where the slope of the allocated peak between two sizes meets the limit."""
        if low >= high:
            return None
        at_low, at_high = (find_peak(self.family.trace(n), self.setting.expandable).allocated for n in (low, high))
        if at_high <= at_low:
            return None
        return max(1, int(high + (self.usable - at_high) * (high - low) / (at_high - at_low)))

    def _between(self, good: int, bad: int) -> int:
        return min((good + bad) // 2, max(good * 2, SECOND))

    def shortfall(self) -> tuple[Forecast, str]:
        """What the smallest batch needs, and the sentence that says how much of it is not there."""
        one = forecast_trace(self.family.trace(self.smallest), self.job, self.smallest, self.setting)
        missing = max(one.reserved - self.usable, 1)
        too_much = "one sample fits: it needs" if self.smallest == 1 else "two samples fit: they need"
        return one, (
            f"not even {too_much} {show_bytes(one.reserved)}, {show_bytes(self.usable)} can be used "
            f"on {self.setting.card.name}, {show_bytes(missing)} are missing"
        )

    def _refuse(self) -> None:
        raise CannotFit(self.shortfall()[1])
