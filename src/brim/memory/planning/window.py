"""The batches of one optimizer step, as the trainer has them on the card.

All batches of a step are copied to the card before any of it is computed, and those of the step before go when the new
ones are there: so the card holds them twice for a moment, and once, whole, while slice after slice is computed. Batches
that are copied ahead of their step count as part of it. For a moment they are then counted once too often; but memory
that a stream of its own copied into is free only when the device, and not the program, is done with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from brim.errors import ConfigError
from brim.memory.forecast import Setting, trace_on
from brim.memory.planning.family import TraceFamily
from brim.memory.trace.steps import BF16_TRUE, Job
from brim.memory.trace.trace import DEATH, Storage, Trace
from brim.sizes import check_whole


@dataclass(frozen=True)
class StepBatches:
    """What a plan is told of the batches of a step, beside the size of each.

    Args:
        sliceable: whether parts of a batch add up to it; None: unless the model has BatchNorm.
        accumulation: how many there are.
        micro_batch: what goes through the model at once, where that is not to be chosen.
        prefetched: more batches, which wait on the card for their step.
    """

    sliceable: bool | None = None
    accumulation: int = 1
    micro_batch: int | None = None
    prefetched: int = 0

    @classmethod
    def of_job(cls, job: Mapping[str, Any]) -> "StepBatches":
        """As the arguments of a plan say."""
        return cls(**{field.name: job[field.name] for field in fields(cls) if field.name in job}).checked()

    def checked(self) -> "StepBatches":
        """Refuse what cannot be meant."""
        check_whole("accumulation", self.accumulation)
        if self.prefetched != 0:
            check_whole("prefetched", self.prefetched)
        if self.micro_batch is None:
            return self
        check_whole("micro_batch", self.micro_batch)
        if self.sliceable is False:
            raise ConfigError(
                f"sliceable=False forbids splitting, and micro_batch={self.micro_batch} asks for it; leave one out"
            )
        return self

    def passes_of(self, job: Job) -> Job:
        """The job with a forward pass for each batch, as far as more would show something new."""
        return replace(job, accumulation=min(self.accumulation, enough_passes(job)))

    def on_card(self, trace: Trace) -> Trace:
        """The trace of a step with all of them on the card, instead of those that it was made with."""
        several = self.accumulation + self.prefetched
        return trace if several == 1 else with_window(trace, batch_tensors(trace) * several)


ONE_BATCH = StepBatches()


def family_of(job: Job, setting: Setting, batches: StepBatches = ONE_BATCH) -> TraceFamily:
    """Traces of a step over batches of one size, at all sizes."""
    several = job if batches.accumulation + batches.prefetched == 1 else batches.passes_of(job)
    return TraceFamily(lambda n: batches.on_card(trace_on(several, n, setting)))


def sliced_family_of(job: Job, setting: Setting, window: list[int]) -> TraceFamily:
    """Traces of a step in slices, at all sizes of a slice, beside a window of tensors of these sizes."""
    several = replace(job, accumulation=enough_passes(job))
    return TraceFamily(lambda n: with_window(trace_on(several, n, setting), window))


def enough_passes(job: Job) -> int:
    """Forward passes of a step, of which more would show nothing new: the second one finds gradients in place.

    Where gradients have 16 bits, sums of 32 bits are kept beside them from the third one on.
    """
    return 3 if job.precision == BF16_TRUE else 2


def batch_tensors(trace: Trace) -> list[int]:
    """The sizes of the tensors that are copied to the card before the first forward pass."""
    place = next(place for place, (_, phase) in enumerate(trace.marks) if phase == "batch")
    start, stop = trace.marks[place][0], trace.marks[place + 1][0]
    return [size for number, size in trace.events[start:stop] if size != DEATH and _is_batch(trace, number)]


def with_window(trace: Trace, tensors: list[int]) -> Trace:
    """The trace with tensors of these sizes on the card in each step, in the place of the batches it was made with."""
    storages, marks = list(trace.storages), list[tuple[int, str]]()
    events, before = list[tuple[int, int]](), range(0)
    stops = [index for index, _ in trace.marks[1:]] + [len(trace.events)]
    begins = True
    for (start, phase), stop in zip(trace.marks, stops, strict=True):
        marks.append((len(events), phase))
        if phase == "batch" and begins:
            window = range(len(storages), len(storages) + len(tensors))
            storages += [Storage(size, "batch", "batch", kind="batch") for size in tensors]
            events += [*zip(window, tensors, strict=True), *((number, DEATH) for number in before)]
            before, begins = window, False
        begins |= phase == "optimizer"
        events += [(number, size) for number, size in trace.events[start:stop] if not _is_batch(trace, number)]
    return replace(trace, storages=storages, events=events, marks=marks)


def _is_batch(trace: Trace, number: int) -> bool:
    return trace.storages[number].kind == "batch"
