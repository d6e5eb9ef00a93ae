"""The step that looks, before its first batch is computed, whether that batch fits on the GPU."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from brim.data import Batch, batch_length
from brim.data.batches.prefetch import AHEAD
from brim.engine.components.loss import LossFunction, loss_of
from brim.engine.components.optimizer import optimizer_like
from brim.engine.components.two_pass import TwoPass, surrogate_loss
from brim.engine.distributed.ranks import Ranks
from brim.engine.oom.memory_watch import usable_memory
from brim.engine.oom.out_of_memory import causes_of
from brim.engine.sandbox.python_state import CannotPutBack
from brim.engine.sandbox.trial_call import WritesFiles, trial_call
from brim.engine.step.fitting import Fitting
from brim.engine.step.guard import GuardedStep
from brim.engine.step.remembered_forecast import RememberedForecast
from brim.engine.step.resized import batches_like
from brim.engine.step.step_result import StepResult
from brim.errors import BrimError
from brim.frontier import Frontier
from brim.hardware import inventory
from brim.hardware.cards import card_of
from brim.memory.forecast import Setting, forecast_trace, make_job, make_setting, trace_on
from brim.memory.planning.estimates import ModelWithLoss
from brim.memory.planning.largest import Search
from brim.memory.planning.plan import NothingFits, Plan, Planner
from brim.memory.planning.window import StepBatches, family_of
from brim.memory.trace.steps import BF16_TRUE, Job

MORE_ROOM = "more of this card, from other programs or a limit on this one"
WRITES = "memory forecast left out: the loss writes files, so it is not called on trial"
Told = Callable[[Plan | None, str], None]


@dataclass
class PlannedStep:
    """A step that chooses its micro-batch from the forecast of the first batch it sees, and then steps aside."""

    guard: GuardedStep
    model: nn.Module
    loss_fn: LossFunction | None
    sliceable: bool | None
    told: Told
    ema: float | None = None  # the decay of an average of the weights, whose copy is there already
    remembers: bool = False  # whether a forecast that an earlier run made of the same is taken
    fits: bool = False  # whether the fastest way that fits is taken where the batch does not fit as it is
    searches: Callable[[], Any] = lambda: None  # is called before that way is looked for, which takes some forecasts

    def __post_init__(self) -> None:
        self._decided = False
        self.device = self.guard.step.precision.device
        traced, room = partial(frontier_of, self), partial(usable_memory, self.device)
        self._fitting = Fitting(self.guard, self.model, room, traced) if self.fits else None
        if self._fitting is not None:
            self.guard.refit = self._fitting.step_down
        self.guard.estimate = lambda batch: slice_estimate(self, batch)

    def __call__(self, window: Sequence[Batch]) -> StepResult:
        if not self._decided:
            self._decided = True
            self.guard.check.ask(window, self.guard.transaction.made)  # all ranks at once, whatever each of them plans
            self.decide(window)
        return self.guard(window)

    def trial(self) -> AbstractContextManager[Any]:
        """Around calls of the loss for forecasts, which leave no trace."""
        return trial_call(self.model, self.loss_fn, device=self.device, but_for=[self.model])

    def decide(self, window: Sequence[Batch]) -> None:
        """Take the micro-batch size that the forecast of this window asks for, if it does."""
        size, longest, replicated = self._planned_size(window), batch_length(window[0]), self.guard.replicated
        if self.guard.check.gathers and replicated is not None:
            size, longest = agreed_size(replicated.ranks, size, longest)
        if size is not None:
            self.guard.start_with(size, longest)

    def _planned_size(self, window: Sequence[Batch]) -> int | None:
        """By this rank's forecast; None where the batch fits, or nothing is known."""
        try:
            made = self._plan(window)
        except NothingFits as error:
            self.told(None, str(error))
        except CannotPutBack as error:
            self.told(None, f"memory forecast left out: the loss is not called on trial, for {error}")
        except Exception as error:  # operators nobody thought of; no forecast may end a run, which shows what fits
            reason = str(error) if isinstance(error, BrimError) else f"{type(error).__name__}: {str(error)[:200]}"
            wrote = any(isinstance(cause, WritesFiles) for cause in causes_of(error))
            self.told(None, WRITES if wrote else f"memory forecast failed: {reason}; continuing without it")
        else:
            self.told(made, "")
            if made.slices > 1 and self.guard.micro_batch is None:  # else the run that this one continues found a size
                return made.micro_batch
        return None

    def _plan(self, window: Sequence[Batch]) -> Plan:
        """The plan; one that splits the batch only where its parts are known to add up to it."""
        if self._fitting is not None:
            return self._fitted(self._fitting, window)
        made = plan_of(self, window[0], len(window), self.sliceable)
        if made.slices == 1 or self.sliceable or self.guard.check.judge(window).gives_count:
            return made
        return plan_of(self, window[0], len(window), sliceable=False)

    def _fitted(self, fitting: Fitting, window: Sequence[Batch]) -> Plan:
        """As without ``fit`` where the batch fits as it is, else by the frontier."""
        if self.guard.micro_batch is None:
            planner = _planner(self, window[0], len(window), self.sliceable)
            planner.family = family_of(planner.job, planner.setting, planner.batches)
            length = batch_length(window[0])
            with self.trial():
                if Search(planner.job, planner.setting, planner.limit, planner.family).fits(length):
                    return planner.plan(length, look_further=False)
        self.searches()
        return fitting.plan(window)


def frontier_of(
    planned: PlannedStep, example: Batch, batches: int, sliceable: bool | None, ways: tuple[str, ...], fixed: int | None
) -> Frontier:
    """All ways to train batches such as this one, traced with the model as it is."""
    job = job_of(planned, example)
    if not planned.guard.ladder.leaves_blocks_open:
        job = replace(job, checkpointing=False)
    return Frontier(
        job, setting_on(planned.device), batch_length(example), StepBatches(sliceable, batches, fixed, AHEAD), ways,
        trial=planned.trial,
    )  # fmt: skip


def agreed_size(ranks: Ranks, own: int | None, samples: int) -> tuple[int | None, int]:
    """Where ranks compute in step with each other: the smallest micro-batch of all, and the most samples of a part."""
    said = ranks.all_gather_numbers([own or 0, samples])
    sizes = [size for size, _ in said if size]
    return min(sizes, default=None), max(samples for _, samples in said)


def plan_of(planned: PlannedStep, example: Batch, batches: int, sliceable: bool | None) -> Plan:
    """The plan for steps over so many batches such as this one on the GPU that the step runs on."""
    planner = _planner(planned, example, batches, sliceable)
    remembered = _remembered(planned, planner, example) if planned.remembers else None
    known = None if remembered is None else remembered.recall(planner)
    if known is not None:
        return known
    planner.family = family_of(planner.job, planner.setting, planner.batches)
    with planned.trial():
        made = planner.plan(batch_length(example), look_further=False)
    if remembered is not None:
        remembered.keep(made, planner)
    return made


def _remembered(planned: PlannedStep, planner: Planner, example: Batch) -> RememberedForecast | None:
    step = planned.guard.step
    settings = (planner.job.precision, step.clip_norm, planned.ema, planner.batches.accumulation, AHEAD)
    return RememberedForecast.of(planned.model, planned.loss_fn, step.optimizer, example, planner.setting, settings)


def _planner(planned: PlannedStep, example: Batch, batches: int, sliceable: bool | None) -> Planner:
    return Planner(
        job_of(planned, example), setting_on(planned.device), usable_memory(planned.device),
        StepBatches(sliceable, batches, prefetched=AHEAD), more_room=MORE_ROOM,
    )  # fmt: skip


def slice_estimate(planned: PlannedStep, example: Batch) -> int | None:
    """What a step with one sample of this batch would reserve with the model as it is now, if that can be forecast."""
    try:
        with planned.trial():
            job, setting = job_of(planned, example), setting_on(planned.device)
            return forecast_trace(trace_on(job, 1, setting), job, 1, setting).reserved
    except Exception:  # as in PlannedStep: the run itself will show
        return None


def setting_on(device: torch.device) -> Setting:
    """The GPU that steps run on, for forecasts."""
    return make_setting(card_of(inventory().gpus[device.index or 0]), None, None)


def job_of(planned: PlannedStep, example: Batch) -> Job:
    """Training as the step does it, for forecasts, with batches like ``example``."""
    step = planned.guard.step
    return make_job(
        ModelWithLoss(planned.model, partial(_traced_loss, planned.loss_fn, batch_length(example))),
        batches_like(example), optimizer=lambda parameters: optimizer_like(step.optimizer, parameters),
        precision=_precision_of(planned), clip_norm=step.clip_norm, ema=planned.ema,
    )  # fmt: skip


def _traced_loss(loss_fn: LossFunction | None, length: int, copied: nn.Module, samples: Batch) -> Any:
    """The loss of a micro-batch; of one in two passes, whose loss is over the whole batch, with the memory of that."""
    if isinstance(loss_fn, TwoPass) and batch_length(samples) < length:
        return surrogate_loss(loss_fn, copied, samples, length)
    return loss_of(copied, loss_fn)(samples)


def _precision_of(planned: PlannedStep) -> str:
    """Weights that came in bfloat16 are trained as such, sums over micro-batches included, by whatever name."""
    name, types = planned.guard.step.precision.name, {parameter.dtype for parameter in planned.model.parameters()}
    return BF16_TRUE if name == "32" and types == {torch.bfloat16} else name
