"""From a forecast to settings: what to train with so that the card is full and not over it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from brim.errors import CannotFit, ModelError
from brim.hardware.cards import Card
from brim.memory.family import TraceFamily, fits
from brim.memory.forecast import (
    Forecast,
    ModelLike,
    OptimizerMaker,
    Setting,
    check_batch_size,
    check_whole,
    forecast_trace,
    make_job,
    make_setting,
    trace_on,
)
from brim.memory.largest import Search
from brim.memory.parallel import with_standing
from brim.memory.remedies import Remedy, remedies
from brim.memory.sizes import parse_bytes, show_bytes
from brim.memory.steps import Batch, Job
from brim.memory.trace import Trace

FURTHER = 64  # how many times the batch asked for is looked at
MOST_TRIES = 7


@dataclass(frozen=True)
class Plan:
    """Settings for a run, the forecast they follow from, and the reason for each.

    ``batch_size`` is the optimisation batch and stays as it was asked for; ``micro_batch`` is the slice of it that goes
    through the model at once. ``largest`` is the largest micro-batch that would fit. ``advice`` is what would help and
    is left to the user.
    """

    batch_size: int
    micro_batch: int
    slices: int
    largest: int
    limit: int
    forecast: Forecast
    gpus: int = 1
    strategy: str = "single"
    checkpointing: bool = False
    cache: bool | None = None
    reasons: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "batch_size": self.batch_size, "micro_batch": self.micro_batch, "slices": self.slices,
            "largest_micro_batch": self.largest, "limit": self.limit, "gpus": self.gpus, "strategy": self.strategy,
            "checkpointing": self.checkpointing, "cache": self.cache, "reasons": list(self.reasons),
            "advice": list(self.advice), "forecast": self.forecast.as_json(),
        }  # fmt: skip


class NothingFits(CannotFit):
    """Not even one sample fits; the remedies come with their forecasts."""

    def __init__(self, sentence: str, forecast: Forecast, remedies: list[Remedy]) -> None:
        listed = "; ".join(remedy.sentence for remedy in remedies)
        super().__init__(f"{sentence}; what helps most: {listed}" if listed else sentence)
        self.forecast, self.remedies = forecast, remedies


def plan(
    model: ModelLike,
    batch: Callable[[int], Batch],
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: OptimizerMaker | None = None,
    *,
    batch_size: int,
    precision: str = "32",
    card: str | Card | None = None,
    memory: str | int | None = None,
    runtime: str | None = None,
    gpus: int = 1,
    sliceable: bool | None = None,
    clip_norm: float | None = None,
    expandable_segments: bool | None = None,
) -> Plan:
    """Choose the micro-batch for an optimisation batch of ``batch_size`` on a card, and say why.

    The arguments are those of `forecast`. A batch that does not fit is cut into slices of equal size, which gives the
    same training (models with BatchNorm excepted: those are sliced only with ``sliceable=True``). Raises `CannotFit`
    with the most effective remedies where not even one sample fits.

    >>> import torch
    >>> from torch import nn
    >>> chosen = plan(lambda: nn.Linear(8192, 8192), lambda n: ((torch.empty(n, 8192),), {}), batch_size=65536,
    ...               card="NVIDIA H200", memory="4GiB")
    >>> chosen.micro_batch < 65536, chosen.slices * chosen.micro_batch >= 65536
    (True, True)
    """
    check_batch_size(batch_size)
    job = make_job(model, batch, loss, optimizer, precision, clip_norm=clip_norm)
    setting = make_setting(card, runtime, expandable_segments)
    check_whole("gpus", gpus)
    return Planner(job, setting, None if memory is None else parse_bytes(memory), sliceable).plan(batch_size, gpus)


@dataclass
class Planner:
    """The decisions, one after the other."""

    job: Job
    setting: Setting
    limit: int | None = None
    sliceable: bool | None = None
    family: TraceFamily | None = None  # traces of this job on cards of this kind, if there are some already
    with_remedies: bool = True  # each of them costs a trace
    reasons: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    def plan(self, batch_size: int, gpus: int = 1, look_further: bool = True) -> Plan:
        """``look_further`` also finds out how large a batch could be that is larger than the one asked for."""
        search = Search(self.job, self.setting, self.limit, self.family)
        whole = self._fits(search, batch_size)
        if not whole and not self._fits(search, 1) and not self._fits(search, 2):
            self._refuse(search)
        largest = batch_size if whole and not look_further else search.largest(FURTHER * batch_size)
        largest = max(largest, batch_size) if whole else min(largest, batch_size - 1)
        micro_batch, trace = (
            (batch_size, search.family.trace(batch_size)) if whole else self._slice(search, batch_size, largest)
        )
        slices = -(-batch_size // micro_batch)
        self._explain_batch(batch_size, micro_batch, slices, largest)
        made = forecast_trace(trace, self.job, micro_batch, self.setting, search.usable)
        self._advise(made, search, gpus, batch_size)
        return Plan(
            batch_size, micro_batch, slices, largest, search.limit, made, reasons=tuple(self.reasons),
            advice=tuple(self.advice),
        )  # fmt: skip

    def _fits(self, search: Search, batch_size: int) -> bool:
        """Models with BatchNorm cannot train on one sample: that is no reason to refuse them."""
        try:
            return search.fits(batch_size)
        except ModelError:
            if batch_size > 1:
                raise
            return False

    def _slice(self, search: Search, batch_size: int, largest: int) -> tuple[int, Trace]:
        """Equal slices, as few as fit beside the gradients of the slices before and the rest of the batch."""
        self._may_slice(search, batch_size, largest)
        sliced = self._sliced_family(search)
        slices = -(-batch_size // largest)
        lies_there = batch_size * sample_bytes(search.family.trace(largest), largest)
        for _ in range(MOST_TRIES if lies_there < search.usable else 0):
            micro_batch = -(-batch_size // slices)
            trace = sliced.trace(micro_batch)
            waiting = (batch_size - 2 * micro_batch) * sample_bytes(trace, micro_batch)
            whole = with_standing(trace, [("the rest of the batch", max(0, waiting))], "batch")
            if fits(whole.events, search.usable, self.setting.expandable):
                return micro_batch, whole
            if micro_batch == 1:
                break
            slices = max(slices + 1, slices * 3 // 2)
        raise NothingFits(
            f"a batch of {batch_size:,} does not fit on {self.setting.card.name} even in slices, because all of "
            "it lies on the card while they are computed: choose a smaller batch, and gradient_accumulation_steps for "
            "the rest",
            forecast_trace(search.family.trace(largest), self.job, largest, self.setting),
            [],
        )

    def _sliced_family(self, search: Search) -> TraceFamily:
        """Traces with the gradients of earlier slices in place: two of them show all that more would show."""
        if search.family.sliced is None:
            accumulating = replace(self.job, accumulation=2)
            search.family.sliced = TraceFamily(lambda n: trace_on(accumulating, n, self.setting))
        return search.family.sliced

    def _may_slice(self, search: Search, batch_size: int, largest: int) -> None:
        forbidden = "sliceable=False forbids slicing" if self.sliceable is False else ""
        if search.family.trace(largest).has_batch_norm and self.sliceable is None:
            forbidden = "the model has BatchNorm, so slicing would be another training (sliceable=True allows it)"
        if forbidden:
            raise NothingFits(
                f"a batch of {batch_size:,} does not fit on {self.setting.card.name}, {largest:,} samples do, and "
                f"{forbidden}: choose a smaller batch",
                forecast_trace(search.family.trace(largest), self.job, largest, self.setting),
                [],
            )

    def _explain_batch(self, batch_size: int, micro_batch: int, slices: int, largest: int) -> None:
        if slices == 1:
            self.reasons.append(f"micro-batch {micro_batch:,}: the whole batch fits at once")
        else:
            self.reasons.append(
                f"micro-batch {micro_batch:,} in {slices} slices: a batch of {batch_size:,} does not fit at once, "
                f"{largest:,} samples do; the slices add up to the same step"
            )
        self.reasons.append("one GPU: training on several is not in this version")
        self.reasons.append("no activation checkpointing: the batch fits without it")

    def _advise(self, made: Forecast, search: Search, gpus: int, batch_size: int) -> None:
        if made.reserved < 0.5 * search.limit and made.batch_size == batch_size:
            self.advice.append(
                f"the card would be {100 * made.reserved / search.limit:.0f} % full: a larger batch would fit"
            )
        if gpus > 1:
            share = -(-batch_size // gpus)
            self.advice.append(f"on {gpus} GPUs with DDP each would take {share:,} samples of the batch")
        if made.parts["fragmentation"] > 0.15 * made.reserved and not self.setting.expandable:
            self.advice.append(
                f"{show_bytes(made.parts['fragmentation'])} are lost between blocks: "
                "PYTORCH_ALLOC_CONF=expandable_segments:True gets most of it back"
            )

    def _refuse(self, search: Search) -> None:
        one = forecast_trace(search.family.trace(1), self.job, 1, self.setting)
        missing = max(one.reserved - search.usable, 1)
        raise NothingFits(
            f"not even one sample fits: it needs {show_bytes(one.reserved)}, {show_bytes(search.usable)} can be used "
            f"on {self.setting.card.name}, {show_bytes(missing)} are missing",
            one,
            remedies(self.job, self.setting, 1, search.usable) if self.with_remedies else [],
        )


def sample_bytes(trace: Trace, batch_size: int) -> int:
    """What one sample of a batch takes while it waits on the card."""
    sizes = [storage.size for storage in trace.storages if storage.kind == "batch"]
    steps = max(1, sum(phase == "batch" for _, phase in trace.marks))
    return sum(sizes) // steps // max(1, batch_size)
