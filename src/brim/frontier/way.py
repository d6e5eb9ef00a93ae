"""One way to compute logits, at any size of a micro-batch: events, times, and the least recomputation that fits."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property

from brim.errors import ModelError
from brim.frontier.block_counter import BlockCost, CountedStep, count_step
from brim.frontier.least_recomputation import least_recomputation
from brim.frontier.line import line_through
from brim.frontier.recomputed_trace import (
    Passes,
    added_to_numbers,
    live_peak,
    passes_in,
    recomputed_events,
    saved_bytes,
)
from brim.hardware.peaks import Peak
from brim.memory.allocator.allocator import replay
from brim.memory.forecast import Setting
from brim.memory.planning.family import Events, Line, fits
from brim.memory.planning.largest import FIRST
from brim.memory.planning.window import ONE_BATCH, StepBatches, batch_tensors, enough_passes, with_window
from brim.memory.trace.steps import Job
from brim.speed_up.step_time import StepTime

MORE = 0.02  # of what blocks hold: by so much more is freed where the allocator has no place for the pieces
TRIES = 24  # halvings, and as many of such steps at most


@dataclass(frozen=True)
class SizedStep:
    """A step in micro-batches of one size."""

    micro_batch: int
    slices: int
    events: Events
    passes: list[Passes]
    owner: list[int]
    outputs: frozenset[int]
    kept: frozenset[int]  # copies of weights, which autocast keeps
    left: frozenset[int]  # in objects of the caller's
    optional: frozenset[int]  # workspaces that are left out where there is no room, of both passes
    time: StepTime  # of one pass, and of the optimizer
    blocks: tuple[BlockCost, ...]

    def with_recomputed(self, chosen: Collection[int]) -> Events:
        return recomputed_events(self.events, self.passes, self.owner, self.outputs, chosen, self.kept, self.left)

    def seconds(self, chosen: Collection[int], accumulation: int) -> float:
        """Of an optimizer step."""
        host = self.time.host_backward + sum(self.blocks[place].host for place in chosen)
        gpu = self.time.gpu_passes + sum(self.blocks[place].gpu for place in chosen)
        return replace(self.time, host_backward=host, gpu_passes=gpu).times(self.slices * accumulation).seconds

    def reserved(self, chosen: Collection[int], cap: int | None, expandable: bool) -> int:
        """What torch would reserve; under a cap, which must be enough, it gives back what is free first."""
        return replay(self.with_recomputed(chosen), cap, expandable, self.optional).peak_reserved

    def fits(self, chosen: Collection[int], cap: int, expandable: bool) -> bool:
        events = self.with_recomputed(chosen)
        return live_peak(events, self.optional) <= cap and fits(events, cap, expandable, self.optional)

    def least_that_fits(self, cap: int, expandable: bool) -> tuple[int, ...] | None:
        """The places of the blocks to recompute, at the least cost, so that it fits; None where it never does."""
        if self.fits((), cap, expandable):
            return ()
        everything = range(len(self.blocks))
        if not self.blocks or not self.fits(everything, cap, expandable):
            return None
        savings = saved_bytes(self.events, self.passes, self.owner, self.outputs, len(self.blocks))
        costs = [block.host + block.gpu for block in self.blocks]
        low, high = 0, sum(savings)
        for _ in range(TRIES):
            if high - low <= MORE * sum(savings) / 2:
                break
            middle = (low + high) // 2
            chosen = least_recomputation(savings, costs, middle)
            if live_peak(self.with_recomputed(chosen), self.optional) <= cap:
                high = middle
            else:
                low = middle
        before: tuple[int, ...] = ()
        for more in range(TRIES):
            chosen = least_recomputation(savings, costs, high + int(more * MORE * sum(savings)))
            if chosen != before and self.fits(chosen, cap, expandable):
                return chosen
            before = chosen
        return tuple(everything)


@dataclass
class Way:
    """A job as it is, at any number of micro-batches; traced at one size whole, and at two in micro-batches."""

    job: Job
    setting: Setting
    peak: Peak
    batch_size: int
    batches: StepBatches = ONE_BATCH
    _steps: dict[int, SizedStep] = field(default_factory=dict)

    @cached_property
    def whole(self) -> CountedStep:
        """The batch at once, with the batches of the step on the card."""
        made = count_step(self.batches.passes_of(self.job), self.batch_size, self.setting, self.peak)
        trace = self.batches.on_card(made.trace)
        return replace(made, trace=trace, owner=_padded(made.owner, len(trace.storages)))

    @property
    def may_split(self) -> bool:
        """Whether nothing that the trace saw speaks against it."""
        return self.batch_size > 1 and not self.whole.trace.has_batch_norm

    def prepare(self) -> None:
        """Trace now what micro-batches of all sizes follow from."""
        self._line  # noqa: B018

    def step(self, slices: int) -> SizedStep:
        """So many micro-batches, or as many fewer as their size makes."""
        if slices not in self._steps:
            self._steps[slices] = self._step(slices)
        return self._steps[slices]

    def _step(self, slices: int) -> SizedStep:
        if slices == 1:
            made, size = self.whole, self.batch_size
            return self._sized(made, size, made.trace.events, made.time, made.blocks)
        size = -(-self.batch_size // slices)
        low, high = self._ends
        if high.samples == low.samples:
            return self._sized(high, size, high.trace.events, high.time, high.blocks)
        share = (size - low.samples) / (high.samples - low.samples)
        blocks = tuple(_block_between(a, b, share) for a, b in zip(low.blocks, high.blocks, strict=True))
        time = time_between(low.time, high.time, share)
        return self._sized(high, size, self._line.events_at(size), time, blocks)

    def _sized(
        self, made: CountedStep, size: int, events: Events, time: StepTime, blocks: tuple[BlockCost, ...]
    ) -> SizedStep:
        passes = passes_in(made.trace.marks, len(events))
        slices = -(-self.batch_size // size)
        workspaces, more = made.trace.optional, added_to_numbers(events)
        optional = workspaces | {number + more for number in workspaces}
        return SizedStep(
            size, slices, events, passes, made.owner, made.outputs, _weights_in(made), made.left, optional, time, blocks
        )

    @cached_property
    def _ends(self) -> tuple[CountedStep, CountedStep]:
        """Two sizes between which most micro-batches lie."""
        high = max(1, self.batch_size // 2)
        low = min(high, max(FIRST, self.batch_size // 16))
        try:
            first = self._sliced(low)
        except ModelError:  # one that does not run on so few
            first = self._sliced(high)
        return first, first if high == first.samples else self._sliced(high)

    @cached_property
    def _line(self) -> Line:
        low, high = self._ends
        if low.samples == high.samples:
            return Line([])
        return line_through(low.trace, high.trace, low.samples, high.samples)

    def _sliced(self, size: int) -> CountedStep:
        job = replace(self.job, accumulation=enough_passes(self.job))
        made = count_step(job, size, self.setting, self.peak)
        trace = with_window(made.trace, batch_tensors(self.whole.trace))
        return replace(made, trace=trace, owner=_padded(made.owner, len(trace.storages)))


def _weights_in(made: CountedStep) -> frozenset[int]:
    """Copies of weights in 2 bytes, which autocast makes: half as large as a parameter of 4."""
    halves = {storage.size // 2 for storage in made.trace.storages if storage.kind == "parameters"}
    return frozenset(
        number
        for number, storage in enumerate(made.trace.storages)
        if made.owner[number] >= 0 and "_to_copy" in storage.operator and storage.size in halves
    )


def _padded(owner: list[int], length: int) -> list[int]:
    return owner + [-1] * (length - len(owner))


def _between(a: float, b: float, share: float) -> float:
    return max(0.0, a + share * (b - a))


def time_between(a: StepTime, b: StepTime, share: float) -> StepTime:
    """The time of a size between two, or a little beyond, by its share of the way from one to the other."""
    names = ("host_forward", "host_backward", "host_optimizer", "gpu_passes", "gpu_optimizer")
    return StepTime(*(_between(getattr(a, name), getattr(b, name), share) for name in names))


def _block_between(a: BlockCost, b: BlockCost, share: float) -> BlockCost:
    return BlockCost(b.name, _between(a.host, b.host, share), _between(a.gpu, b.gpu, share))
