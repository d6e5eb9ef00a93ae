"""From a forecast to settings: what to train with so that the card is full and not over it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from torch import Tensor

from brim.arguments.known import explained_call
from brim.errors import CannotFit, ModelError
from brim.hardware.cards import Card
from brim.memory.forecast import (
    Forecast,
    ModelLike,
    OptimizerMaker,
    Setting,
    forecast_trace,
    make_job,
    make_setting,
    precision_on,
)
from brim.memory.planning.evaluation_peak import larger_evaluation
from brim.memory.planning.family import TraceFamily
from brim.memory.planning.largest import FIRST, Search
from brim.memory.planning.micro_batches import MicroBatches
from brim.memory.planning.remedies import Remedy, remedies
from brim.memory.planning.window import ONE_BATCH, StepBatches, family_of
from brim.memory.trace.steps import Batch, Job
from brim.memory.trace.trace import Trace
from brim.model_blocks import AUTO, BlockChoice
from brim.sizes import check_whole, parse_memory, show_bytes

FURTHER = 64  # how many times the batch asked for is looked at


@dataclass(frozen=True)
class Plan:
    """Settings for a run, the forecast they follow from, and the reason for each.

    Args:
        batch_size: the optimisation batch, as it was asked for.
        micro_batch: what of it goes through the model at once.
        slices: in how many parts.
        largest: the largest micro-batch that was found to fit.
        limit: bytes that torch may reserve.
        forecast: of this micro-batch.
        gpus: how many share the batch.
        strategy: how.
        checkpointing: which blocks are computed again in the backward pass; False for none.
        cache: whether encodings are cached, where the model can.
        reasons: for each of these.
        advice: what would help and is left to the user.
        logits: how those of a language model are computed, where the plan decides that.
        cost: what fitting costs, in a line; empty where nothing was done for it.
        larger_may_fit: whether one larger than ``largest`` may fit, which was not looked for.
        evaluation: the forecast with an evaluation after the steps, where that takes more than they do.

    >>> import torch
    >>> made = plan(lambda: torch.nn.Linear(512, 512), lambda n: ((torch.empty(n, 512),), {}), batch_size=64,
    ...             card="NVIDIA H200")
    >>> made.micro_batch, made.slices
    (64, 1)
    """

    batch_size: int
    micro_batch: int
    slices: int
    largest: int
    limit: int
    forecast: Forecast
    gpus: int = 1
    strategy: str = "single"
    checkpointing: BlockChoice = False
    cache: bool | None = None
    reasons: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    logits: str | None = None
    cost: str = ""
    larger_may_fit: bool = False
    evaluation: Forecast | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "batch_size": self.batch_size, "micro_batch": self.micro_batch, "slices": self.slices,
            "largest_micro_batch": self.largest, "larger_may_fit": self.larger_may_fit, "limit": self.limit,
            "gpus": self.gpus, "strategy": self.strategy, "checkpointing": self.checkpointing, "cache": self.cache,
            "reasons": list(self.reasons), "advice": list(self.advice), "logits": self.logits, "cost": self.cost,
            "forecast": self.forecast.as_json(),
            "evaluation": None if self.evaluation is None else self.evaluation.as_json(),
        }  # fmt: skip


class NothingFits(CannotFit):
    """Not even one sample fits; the remedies come with their forecasts."""

    def __init__(self, sentence: str, forecast: Forecast, remedies: list[Remedy]) -> None:
        listed = "; ".join(remedy.sentence for remedy in remedies)
        super().__init__(f"{sentence}; what helps most: {listed}" if listed else sentence)
        self.forecast, self.remedies = forecast, remedies


@explained_call
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
    accumulation: int = 1,
    micro_batch: int | None = None,
    prefetched: int = 0,
    ema: float | None = None,
    logits: str = "whole",
    checkpointing: BlockChoice = None,
    evaluation: int | None = None,
) -> Plan:
    """Choose the micro-batch for batches of ``batch_size`` on a card, and say why.

    A batch that does not fit is cut into micro-batches of equal size, which gives the same training (models with
    BatchNorm excepted: those are split only with ``sliceable=True``).

    Args:
        model, batch, loss, optimizer, precision, card, runtime, clip_norm, expandable_segments, gpus,
            ema, logits, checkpointing, evaluation: as in `forecast`.
        batch_size: the optimisation batch, over all GPUs.
        memory: a limit below the card's, such as ``"6GiB"``.
        sliceable: whether parts of a batch add up to it.
        accumulation: batches of a step, which all lie on the card, as the trainer puts them there.
        micro_batch: is not chosen where it is given, only looked at.
        prefetched: more batches that wait on the card for their step.

    Raises:
        CannotFit: with the most effective remedies, where not even one sample fits.

    >>> import torch
    >>> from torch import nn
    >>> chosen = plan(lambda: nn.Linear(8192, 8192), lambda n: ((torch.empty(n, 8192),), {}), batch_size=65536,
    ...               card="NVIDIA H200", memory="6GiB")
    >>> chosen.micro_batch < 65536, chosen.slices * chosen.micro_batch >= 65536
    (True, True)
    """
    check_whole("batch_size", batch_size)
    check_whole("gpus", gpus)
    batches = StepBatches(sliceable, accumulation, micro_batch, prefetched).checked()
    setting = make_setting(card, runtime, expandable_segments)
    named = precision_on(setting.card, precision)
    job = make_job(
        model, batch, loss, optimizer, named, clip_norm=clip_norm, ema=ema, logits=logits, checkpointing=checkpointing,
        evaluation=evaluation,
    )  # fmt: skip
    limit = None if memory is None else parse_memory(memory)
    made = Planner(replace(job, evaluation=None), setting, limit, batches).plan(batch_size, gpus)
    # An evaluation has no part in the choice of the micro-batch: one that does not fit is computed in parts of its own.
    larger = larger_evaluation(job, setting, batches, made.forecast, made.slices)
    if larger is None:
        return made
    fits = "which fits" if larger.reserved <= made.limit else "which does not fit: evaluate in smaller batches"
    told = (
        f"an evaluation of {evaluation:,} samples at once takes more than the steps: {show_bytes(larger.reserved)} "
        f"reserved, {fits}"
    )
    return replace(made, evaluation=larger, reasons=(*made.reasons, told))


@dataclass
class Planner:
    """The decisions, one after the other."""

    job: Job
    setting: Setting
    limit: int | None = None
    batches: StepBatches = ONE_BATCH
    family: TraceFamily | None = None  # traces of this job on cards of this kind, if there are some already
    with_remedies: bool = True  # each of them costs a trace
    more_room: str = "a higher limit (memory=, --memory), or none"  # how to get more of the card than the limit

    def plan(self, batch_size: int, gpus: int = 1, look_further: bool = True) -> Plan:
        """``look_further`` also finds out how large a batch could be that is larger than the one asked for."""
        family = self.family or family_of(self.job, self.setting, self.batches)
        search = Search(self.job, self.setting, self.limit, family)
        if search.fits(batch_size):
            seen = FURTHER * batch_size if look_further else batch_size
            largest = max(batch_size, search.largest(seen)) if look_further else batch_size
            larger_may_fit = largest >= seen
        else:
            largest, larger_may_fit = self._part(search, batch_size), False
        micro_batch, trace = self._choose(search, batch_size, largest)
        made = forecast_trace(trace, self.job, micro_batch, self.setting, search.usable)
        return self._plan_of(made, search.limit, batch_size, largest, larger_may_fit, gpus)

    def plan_by(self, known: Forecast) -> Plan | None:
        """The plan that `plan` would make, without a trace, of a whole batch whose forecast without a limit is known.

        None where it does not fit under the limit of now.
        """
        search, size = Search(self.job, self.setting, self.limit), known.batch_size
        if known.reserved - self.setting.calibration.extra_reserved > search.usable:
            return None
        return self._plan_of(known, search.limit, size, size, larger_may_fit=True)

    def _plan_of(
        self, made: Forecast, limit: int, batch_size: int, largest: int, larger_may_fit: bool, gpus: int = 1
    ) -> Plan:
        """The plan whose micro-batch is the batch of a forecast."""
        slices = -(-batch_size // made.batch_size)
        return Plan(
            batch_size, made.batch_size, slices, largest, limit, made, checkpointing=self._checkpointing,
            reasons=tuple(self._reasons(batch_size, made.batch_size, slices, largest)),
            advice=tuple(self._advice(made, limit, gpus, batch_size)), larger_may_fit=larger_may_fit,
        )  # fmt: skip

    @property
    def _checkpointing(self) -> BlockChoice:
        """As the job has it; None and "auto" leave it to memory, and a plan that fits needs none."""
        return False if self.job.checkpointing in (None, AUTO) else self.job.checkpointing

    def _part(self, search: Search, batch_size: int) -> int:
        """How many samples of a batch fit at once, where all of them do not."""
        smallest = self._smallest(search, batch_size)
        if smallest is None:
            self._refuse(search)
        if self.batches.micro_batch is None and not self._unsliceable(search):
            slices = MicroBatches(search, batch_size)
            if not slices.leave_room() or self._smallest(slices, batch_size) is None:
                self._leaves_no_room(slices)
        return max(smallest, search.largest(batch_size - 1, seen=batch_size))

    def _smallest(self, search: Search | MicroBatches, batch_size: int) -> int | None:
        """One of the smallest parts of a batch, if it fits.

        Models with BatchNorm cannot train on one sample: that is no reason to refuse them.
        """
        if batch_size > FIRST and search.fits(FIRST):
            return FIRST
        try:
            return 1 if batch_size > 1 and search.fits(1) else None
        except ModelError:
            return None

    def _choose(self, search: Search, batch_size: int, largest: int) -> tuple[int, Trace]:
        """The micro-batch, and the trace of a step with it."""
        if largest >= batch_size <= (self.batches.micro_batch or batch_size):
            return batch_size, search.family.trace(batch_size)
        slices = MicroBatches(search, batch_size)
        if (asked := self.batches.micro_batch) is not None:
            if asked >= batch_size or not slices.fits(asked):
                wrong = f"micro_batch={asked:,} does not: choose a smaller one, or leave it to brim ('auto')"
                self._cannot(search, batch_size, largest, wrong)
            return asked, slices.trace(asked)
        if forbidden := self._unsliceable(search):
            self._cannot(search, batch_size, largest, f"{forbidden}: choose a smaller batch")
        chosen = slices.fewest(largest)
        if chosen is None:
            self._leaves_no_room(slices)
        return chosen, slices.trace(chosen)

    def _unsliceable(self, search: Search) -> str:
        """Why a batch must not be split, if it must not."""
        if self.batches.sliceable is False:
            return "sliceable=False forbids splitting"
        if search.family.trace(FIRST).has_batch_norm and self.batches.sliceable is None:
            return "the model has BatchNorm, so splitting would be another training (sliceable=True allows it)"
        return ""

    def _leaves_no_room(self, slices: MicroBatches) -> NoReturn:
        least = min(FIRST, slices.batch_size - 1)
        smaller = "a smaller batch" if self.batches.accumulation == 1 else "smaller batches, or fewer in a step"
        raise NothingFits(
            f"{self._batches(slices.batch_size)} does not fit on {self.setting.card.name} even in micro-batches, "
            "because all of it lies on the card while they are computed, and the next is copied before it goes: choose "
            f"{smaller}",
            forecast_trace(slices.trace(least), self.job, least, self.setting),
            [],
        )

    def _cannot(self, search: Search, batch_size: int, largest: int, why: str) -> NoReturn:
        """Some samples fit, and this batch cannot be trained with all the same."""
        raise NothingFits(
            f"{self._batches(batch_size)} does not fit on {self.setting.card.name} at once, {largest:,} samples do, "
            f"and {why}",
            forecast_trace(search.family.trace(largest), self.job, largest, self.setting),
            [],
        )

    def _refuse(self, search: Search) -> NoReturn:
        one, sentence = search.shortfall()
        more_room = "" if self.limit is None else self.more_room
        helps = remedies(self.job, self.setting, 1, search.usable, more_room=more_room) if self.with_remedies else []
        raise NothingFits(sentence, one, helps)

    def _batches(self, batch_size: int) -> str:
        several = f"a step over {self.batches.accumulation:,} batches of {batch_size:,}"
        return several if self.batches.accumulation > 1 else f"a batch of {batch_size:,}"

    def _reasons(self, batch_size: int, micro_batch: int, slices: int, largest: int) -> Iterator[str]:
        if slices == 1:
            yield f"micro-batch {micro_batch:,}: the whole batch fits at once"
        elif self.batches.micro_batch is not None:
            yield f"{slices} micro-batches of {micro_batch:,}: as it was asked for"
        else:
            yield (
                f"{slices} micro-batches of {micro_batch:,}: {self._batches(batch_size)} does not fit at once, "
                f"{largest:,} samples do; the micro-batches add up to the same step"
            )
        if self.batches.accumulation > 1:
            yield f"a step adds up {self.batches.accumulation:,} batches, which all lie on the card"
        yield "one GPU: what more would bring is shown by brim plan --gpus 1,2,4,8"
        if self._checkpointing is False:
            yield "no activation checkpointing: the batch fits without it"
        else:
            yield f"checkpointing={self.job.checkpointing!r}: as it was asked for"

    def _advice(self, made: Forecast, limit: int, gpus: int, batch_size: int) -> Iterator[str]:
        if made.reserved < 0.5 * limit and made.batch_size == batch_size:
            yield f"the card would be {100 * made.reserved / limit:.0f} % full: a larger batch would fit"
        if gpus > 1:
            share = -(-batch_size // gpus)
            yield f"on {gpus} GPUs with DDP each would take {share:,} samples of the batch"
        if made.parts["fragmentation"] > 0.15 * made.reserved and not self.setting.expandable:
            yield (
                f"{show_bytes(made.parts['fragmentation'])} are lost between blocks: "
                "PYTORCH_ALLOC_CONF=expandable_segments:True gets most of it back"
            )
