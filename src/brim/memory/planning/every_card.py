"""One job on many cards, which share what is the same on them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from brim.hardware.cards import Card
from brim.memory.forecast import Setting, make_setting
from brim.memory.planning.family import TraceFamily
from brim.memory.planning.largest import Search
from brim.memory.planning.plan import NothingFits, Planner
from brim.memory.planning.window import ONE_BATCH, StepBatches, family_of
from brim.memory.trace.steps import Job
from brim.memory.trace.trace import Trace
from brim.sizes import check_whole

# Reductions take a few bytes for each multiprocessor: traces that differ by no more than this are taken for the same.
SMALL = 4 << 20


@dataclass(frozen=True)
class CardOutcome:
    """How a job does under a limit: what it is planned with, or, where it does not fit, what it would need."""

    fits: bool
    micro_batch: int
    slices: int
    reserved: int
    limit: int
    largest_micro_batch: int
    notes: tuple[str, ...] = ()  # what the forecast could not know

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class EveryCard:
    """Plans of one job for many cards; what cards have in common is traced and replayed once."""

    job_on: Callable[[Card], Job]
    batch_size: int
    limit: int | None = None
    batches: StepBatches = ONE_BATCH
    _by_capability: dict[tuple[int, int], TraceFamily] = field(default_factory=dict)
    _outcomes: dict[tuple[int, int, int], CardOutcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole("batch_size", self.batch_size)

    def outcome(self, card: Card) -> CardOutcome:
        """The plan for a card, in short."""
        job, setting = self.job_on(card), make_setting(card, None, None)
        family = self._family(job, setting)
        limit = Search(job, setting, self.limit, family).limit
        key = (id(family), limit, setting.calibration.extra_reserved)
        if key not in self._outcomes:
            self._outcomes[key] = self._plan(job, setting, family, limit)
        return self._outcomes[key]

    def _family(self, job: Job, setting: Setting) -> TraceFamily:
        """Cards of one architecture share their traces, and so do architectures that do the same with the batch."""
        capability = setting.card.capability
        if capability not in self._by_capability:
            made = family_of(job, setting, self.batches)
            alike = (known for known in self._by_capability.values() if self._has_same_trace(known, made))
            self._by_capability[capability] = next(alike, made)
        return self._by_capability[capability]

    def _has_same_trace(self, known: TraceFamily, other: TraceFamily) -> bool:
        left, right = (family.trace(self.batch_size) for family in (known, other))
        return storages_of(left) == storages_of(right) and abs(workspaces_of(left) - workspaces_of(right)) <= SMALL

    def _plan(self, job: Job, setting: Setting, family: TraceFamily, limit: int) -> CardOutcome:
        planner = Planner(job, setting, limit, self.batches, family, with_remedies=False)
        try:
            made = planner.plan(self.batch_size)
        except NothingFits as error:
            return CardOutcome(False, 0, 0, error.forecast.reserved, limit, 0, error.forecast.notes)
        reserved, notes = made.forecast.reserved, made.forecast.notes
        return CardOutcome(True, made.micro_batch, made.slices, reserved, limit, made.largest, notes)


def storages_of(trace: Trace) -> list[tuple[str, int]]:
    """What comes to life and dies in a trace, in order, but for what kernels take for themselves."""
    storages = trace.storages
    return [(storages[n].operator, size) for n, size in trace.events if storages[n].kind != "workspace"]


def workspaces_of(trace: Trace) -> int:
    """All bytes that kernels take for themselves, one after the other."""
    return sum(storage.size for storage in trace.storages if storage.kind == "workspace")
