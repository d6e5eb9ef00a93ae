"""A batch that does not fit as it is: the fastest way to train it that does, and the next one after a real shortage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import nn

from brim.data import Batch, batch_length
from brim.engine.step.guard import GuardedStep
from brim.frontier import Costed, Frontier
from brim.logits.chunked_head import CHUNKED, WHOLE, begin_chunks, waits_for_chunks
from brim.memory.forecast import Forecast
from brim.memory.planning.plan import NothingFits, Plan

LESS = 0.93  # of what the last choice was forecast to take, after it ran out of memory
Traced = Callable[[Batch, int, bool | None, tuple[str, ...], int | None], Frontier]
"""Makes the frontier of an example: batches of a step, whether it may be split, ways of logits, a fixed micro-batch."""


@dataclass
class Fitting:
    """Takes rungs of the frontier: before the first step by the forecast, and again when memory really runs out."""

    guard: GuardedStep
    model: nn.Module
    usable: Callable[[], int]  # bytes that torch may reserve now
    traced: Traced
    _frontier: Frontier | None = None
    _taken: Costed | None = None
    _failed: bool = field(default=False, repr=False)

    def plan(self, window: Sequence[Batch]) -> Plan:
        """Choose, make the model compute that way, and say what it costs."""
        limit, length = self.usable(), batch_length(window[0])
        frontier = self._frontier_of(window)
        found = frontier.verified(limit)
        if found is None:
            least = frontier.least(limit).rung
            raise NothingFits(
                f"a batch of {length:,} fits in no way that fit='auto' knows; what takes the least is {least.sentence}",
                frontier.forecast_of(least),
                [],
            )
        chosen, made = found
        self._take(chosen)
        return _plan_of(chosen, made, length, limit)

    def step_down(self, window: Sequence[Batch]) -> str | None:
        """After a shortage: take what needs clearly less, and say what it is; None where nothing does."""
        if self._failed:
            return None
        try:
            frontier = self._frontier or self._frontier_of(window)
        except Exception:  # a forecast that fails ends no run: what is left is tried without it
            self._failed = True
            return None
        now = self._taken or frontier.plain
        chosen = frontier.fastest(int(LESS * min(self.usable(), now.reserved)))
        if chosen is None:
            self._failed = True
            return None
        self._take(chosen)
        self.guard.start_with(chosen.rung.micro_batch, max(map(batch_length, window)))
        return f"going on with {chosen.sentence} (forecast)"

    def _frontier_of(self, window: Sequence[Batch]) -> Frontier:
        """Traced with the model as it is, so before any of it is taken."""
        verdict = self.guard.splitting.verdict or self.guard.check.judge(window)
        may_split = self.guard.sliceable or (self.guard.sliceable is None and verdict.gives_count)
        ways = (WHOLE, CHUNKED) if waits_for_chunks(self.model) else (WHOLE,)
        sliceable = None if self.guard.sliceable is None and may_split else bool(may_split)
        fixed = self.guard.micro_batch
        self._frontier = self.traced(window[0], len(window), sliceable, ways, fixed)
        self._frontier.prepare()
        return self._frontier

    def _take(self, chosen: Costed) -> None:
        blocks = self.guard.ladder.checkpointing
        if blocks is not None and chosen.rung.blocks:
            blocks.apply(chosen.rung.recomputed or False)
        if chosen.rung.logits == CHUNKED:
            begin_chunks(self.model)
        self._taken = chosen


def _plan_of(chosen: Costed, made: Forecast, length: int, limit: int) -> Plan:
    rung = chosen.rung
    cost = "as fast as it can be" if rung.slices == 1 and not rung.recomputed else chosen.sentence
    return Plan(
        length, rung.micro_batch, rung.slices, rung.micro_batch, limit, made, logits=rung.logits,
        checkpointing=rung.recomputed or False, cost=cost,
        reasons=(f"{chosen.sentence} than the whole batch would take, by the forecast: the fastest that fits",),
    )  # fmt: skip
