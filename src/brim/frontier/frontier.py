"""Memory against time: for a job and a limit, the fastest way to train it that fits."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from brim.errors import BrimError
from brim.frontier.rung import Costed, Rung
from brim.frontier.way import SizedStep, Way
from brim.hardware.peaks import USUAL, peak_of
from brim.logits.chunked_head import AUTO, CHUNKED, WHOLE
from brim.memory.context import libraries_of
from brim.memory.forecast import Forecast, Setting, forecast_trace
from brim.memory.planning.family import fits
from brim.memory.planning.largest import Search
from brim.memory.planning.window import ONE_BATCH, StepBatches, batch_tensors, family_of, sliced_family_of
from brim.memory.trace.steps import Job
from brim.memory.trace.trace import Trace

MOST_SIZES = 14  # of micro-batches that are looked at
CLOSE_BY = 0.01  # of the time: what is not faster by more is not worth another allocator
TIGHTER = 0.97  # of the limit, where a trace of what was chosen shows that it does not fit
TRIES = 3


@dataclass
class Frontier:
    """Rungs of one job on one card.

    Args:
        job: as it is without any of them.
        setting: the card and the allocator.
        batch_size: of one batch.
        batches: how many of them a step has, and how they may be split.
        logits: the ways to compute them that may be taken.
        trial: is entered around each trace, which calls the user's code.
    """

    job: Job
    setting: Setting
    batch_size: int
    batches: StepBatches = ONE_BATCH
    logits: tuple[str, ...] = (WHOLE, CHUNKED)
    trial: Callable[[], AbstractContextManager[Any]] = nullcontext
    _ways: dict[str, Way] = field(default_factory=dict)
    _found: dict[tuple[str, int, bool], Costed | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        peak = peak_of(self.setting.card) or USUAL
        chosen = (CHUNKED,) if self.job.logits == CHUNKED else self.logits
        for logits in chosen:
            job = replace(self.job, logits=logits)
            way = Way(job, self.setting, peak, self.batch_size, self.batches)
            try:
                with self.trial():
                    way.whole  # noqa: B018
            except BrimError:
                if logits == chosen[0]:
                    raise
            else:
                self._ways[logits] = way

    def fastest(self, limit: int, logits: str | None = None, expandable: bool | None = None) -> Costed | None:
        """The fastest rung that fits under a limit of what torch may reserve; None where none does."""
        wide = self._expandable if expandable is None else expandable
        ways = self._ways if logits is None else (logits,)
        found = [best for name in ways if (best := self._fastest(name, self._usable(limit), wide)) is not None]
        return min(found, key=lambda costed: (costed.seconds, len(costed.rung.recomputed)), default=None)

    def rows(self, limit: int) -> list[Costed]:
        """What to show: each rung alone, the usual pairs, and the fastest that fits; by their time."""
        usable = self._usable(limit)
        found = [self._plain_under(usable)]
        for way in self._ways.values():
            everything = tuple(range(len(way.whole.blocks)))
            found += [self._largest(way, chosen, usable) for chosen in {(): None, everything: None}]
        best = self.fastest(limit)
        for logits in self._ways:
            solved = self.fastest(limit, logits)
            found += [] if solved is None else [solved]
        if not self._expandable:
            wider = self.fastest(limit, expandable=True)
            if wider is not None and (best is None or wider.seconds < (1 - CLOSE_BY) * best.seconds):
                found.append(wider)
        return sorted(dict.fromkeys(found), key=lambda costed: (costed.seconds, costed.reserved))

    def verified(self, limit: int) -> tuple[Costed, Forecast] | None:
        """The fastest that fits by a trace of its own, with the forecast of that trace."""
        tighter, traced = limit, set[Rung]()
        while len(traced) < TRIES and (chosen := self.fastest(tighter)) is not None:
            tighter = int(TIGHTER * tighter)
            if chosen.rung in traced:
                continue
            traced.add(chosen.rung)
            job, trace = self._trace(chosen.rung)
            if fits(trace.events, self._usable(limit), self._expandable, trace.optional):
                made = forecast_trace(trace, job, chosen.rung.micro_batch, self.setting, self._usable(limit))
                return replace(chosen, reserved=made.reserved), made
        return None

    def least(self, limit: int) -> Costed:
        """Of what is shown, that which takes the least memory, whether it fits or not."""
        return min(self.rows(limit), key=lambda costed: costed.reserved)

    def forecast_of(self, rung: Rung) -> Forecast:
        """The forecast of a trace of its own."""
        job, trace = self._trace(rung)
        return forecast_trace(trace, job, rung.micro_batch, self.setting)

    def seconds_of(self, logits: str, micro_batch: int, recomputed: int) -> float:
        """The forecast time of a step with the first so many blocks recomputed, whether it fits or not."""
        step = self._ways[logits].step(-(-self.batch_size // micro_batch))
        return step.seconds(range(recomputed), self.batches.accumulation)

    def prepare(self) -> None:
        """Make all traces that a choice needs now, so that later changes of the model do not get into them."""
        is_split = self.batches.micro_batch is not None and self.batches.micro_batch < self.batch_size
        with self.trial():
            for way in self._ways.values():
                if is_split or (self.batches.micro_batch is None and self._may_split(way)):
                    way.prepare()

    @property
    def card_limit(self) -> int:
        """What torch may reserve on the card."""
        card, trace = self.setting.card, next(iter(self._ways.values())).whole.trace
        return card.memory - self.setting.calibration.context_of(card, *libraries_of(trace)).high

    @property
    def plain(self) -> Costed:
        """The whole batch at once, and nothing done for it to fit."""
        first = next(iter(self._ways.values()))
        return self._costed(first, first.step(1), (), None, True)

    # -- how --------------------------------------------------------------------------------------------------------

    def _plain_under(self, usable: int) -> Costed:
        """The plain step as it would run under a limit; where it does not, with all that it would reserve."""
        first = next(iter(self._ways.values()))
        fitting = first.step(1).fits((), usable, self._expandable)
        return self._costed(first, first.step(1), (), usable if fitting else None, fitting)

    @property
    def _expandable(self) -> bool:
        return self.setting.expandable

    def _usable(self, limit: int) -> int:
        return Search(self.job, self.setting, limit).usable

    def _fastest(self, logits: str, usable: int, wide: bool) -> Costed | None:
        """Of one way to compute logits: in each size of micro-batches the least recomputation that fits."""
        key = (logits, usable, wide)
        if key not in self._found:
            way, best = self._ways[logits], None
            for step in self._steps(way):
                if best is not None and step.seconds((), self.batches.accumulation) >= best.seconds:
                    break  # smaller micro-batches are no faster
                chosen = step.least_that_fits(usable, wide)
                if chosen is not None:
                    costed = self._costed(way, step, chosen, usable, True, wide)
                    best = costed if best is None or costed.seconds < best.seconds else best
                if chosen == ():
                    break
            self._found[key] = best
        return self._found[key]

    def _largest(self, way: Way, chosen: tuple[int, ...], usable: int) -> Costed:
        """The largest micro-batch with these blocks recomputed; the smallest where none fits."""
        step = None
        for step in self._steps(way):
            if step.fits(chosen, usable, self._expandable):
                return self._costed(way, step, chosen, usable, True)
        assert step is not None
        return self._costed(way, step, chosen, None, False)

    def _steps(self, way: Way) -> Iterator[SizedStep]:
        """Micro-batches of fewer and fewer samples."""
        if self.batches.micro_batch is not None:
            yield way.step(-(-self.batch_size // min(self.batches.micro_batch, self.batch_size)))
            return
        yield way.step(1)
        if not self._may_split(way):
            return
        for size in sizes_of(self.batch_size)[1:]:
            yield way.step(-(-self.batch_size // size))

    def _may_split(self, way: Way) -> bool:
        return way.batch_size > 1 and (way.may_split if self.batches.sliceable is None else self.batches.sliceable)

    def _costed(
        self, way: Way, step: SizedStep, chosen: tuple[int, ...], cap: int | None, fitting: bool,
        expandable: bool | None = None,
    ) -> Costed:  # fmt: skip
        wide = self._expandable if expandable is None else expandable
        names = tuple(step.blocks[place].name for place in chosen)
        logits = CHUNKED if way.job.logits == CHUNKED else WHOLE
        rung = Rung(step.micro_batch, step.slices, names, len(step.blocks), logits, wide and not self._expandable)
        plain = next(iter(self._ways.values())).step(1).seconds((), self.batches.accumulation)
        reserved = step.reserved(chosen, cap, wide) + self.setting.calibration.extra_reserved
        return Costed(rung, reserved, step.seconds(chosen, self.batches.accumulation), plain, fitting)

    def _trace(self, rung: Rung) -> tuple[Job, Trace]:
        """The step as it would be trained, traced for real."""
        recomputed = rung.recomputed or self.job.checkpointing
        job = replace(self.job, checkpointing=recomputed, logits=rung.logits if self.job.logits != AUTO else AUTO)
        window = batch_tensors(next(iter(self._ways.values())).whole.trace)
        whole, sliced = family_of(job, self.setting, self.batches), sliced_family_of
        with self.trial():
            family = whole if rung.slices == 1 else sliced(job, self.setting, window)
            return job, family.trace(rung.micro_batch)


def sizes_of(batch_size: int) -> list[int]:
    """Sizes of micro-batches, from the whole batch down to one sample, none of which makes as many as another.

    >>> sizes_of(12)
    [12, 6, 4, 3, 2, 1]
    """
    slices, found = 1, list[int]()
    while slices < batch_size:
        found.append(-(-batch_size // slices))
        slices = max(slices + 1, -(-batch_size // found[-1]) + 1, int(slices * 1.2))
    sizes = list(dict.fromkeys([*found, 1]))
    if len(sizes) <= MOST_SIZES:
        return sizes
    kept = [sizes[round(place * (len(sizes) - 1) / (MOST_SIZES - 1))] for place in range(MOST_SIZES)]
    return list(dict.fromkeys(kept))
