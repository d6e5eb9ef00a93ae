"""The step that looks, before its first batch is computed, whether that batch fits on the GPU."""

from collections.abc import Callable, Sequence
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
from brim.engine.step.resized import resized
from brim.engine.step.step_result import StepResult
from brim.errors import BrimError
from brim.frontier import Frontier
from brim.hardware import inventory
from brim.hardware.cards import card_of
from brim.memory.forecast import Setting, forecast_trace, make_job, make_setting, trace_on
from brim.memory.planning.estimates import ModelWithLoss
from brim.memory.planning.largest import Search
from brim.memory.planning.plan import NothingFits, Plan, Planner
from brim.memory.planning.window import family_of
from brim.memory.trace.steps import BF16_TRUE, Job

# Nothing that goes wrong in a forecast may end a run: the run itself would show whether the batch fits.
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

    def __post_init__(self) -> None:
        self._decided = False
        device = self.guard.step.precision.device
        traced = partial(frontier_of, self)
        self._fitting = Fitting(self.guard, self.model, lambda: usable_memory(device), traced) if self.fits else None
        if self._fitting is not None:
            self.guard.refit = self._fitting.step_down
        self.guard.estimate = lambda batch: slice_estimate(self, batch)

    def __call__(self, window: Sequence[Batch]) -> StepResult:
        if not self._decided:
            self._decided = True
            self.guard.check.ask(window, self.guard.transaction.made)  # all ranks at once, whatever each of them plans
            self._decide(window)
        return self.guard(window)

    def _decide(self, window: Sequence[Batch]) -> None:
        size, longest, replicated = self._planned_size(window), batch_length(window[0]), self.guard.replicated
        if self.guard.check.gathers and replicated is not None:
            size, longest = agreed_size(replicated.ranks, size, longest)
        if size is not None:
            self.guard.start_with(size, longest)

    def _planned_size(self, window: Sequence[Batch]) -> int | None:
        """The micro-batch that the forecast asks for, if it does."""
        try:
            made = self._plan(window)
        except NothingFits as error:
            self.told(None, str(error))
        except CannotPutBack as error:
            self.told(None, f"memory forecast left out: the loss is not called on trial, for {error}")
        except Exception as error:  # operators nobody thought of, models that inspect their tensors
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
            planner.family = family_of(planner.job, planner.setting, len(window), AHEAD)
            length, device = batch_length(window[0]), self.guard.step.precision.device
            with trial_call(self.model, self.loss_fn, device=device, but_for=[self.model]):
                if Search(planner.job, planner.setting, planner.limit, planner.family).fits(length):
                    return planner.plan(length, look_further=False)
        return fitting.plan(window)


def frontier_of(
    planned: PlannedStep, example: Batch, batches: int, sliceable: bool | None, ways: tuple[str, ...], fixed: int | None
) -> Frontier:
    """All ways to train batches such as this one, traced with the model as it is."""
    device, job = planned.guard.step.precision.device, _job(planned, example)
    if not planned.guard.ladder.leaves_blocks_open:
        job = replace(job, checkpointing=False)
    return Frontier(
        job, _setting(device), batch_length(example), sliceable, batches, AHEAD, fixed, ways,
        trial=lambda: trial_call(planned.model, planned.loss_fn, device=device, but_for=[planned.model]),
    )  # fmt: skip


def agreed_size(ranks: Ranks, own: int | None, samples: int) -> tuple[int | None, int]:
    """Where ranks compute in step with each other: the smallest micro-batch of all, and the most samples of a part."""
    said = ranks.all_gather_numbers([own or 0, samples])
    sizes = [size for size, _ in said if size]
    return min(sizes, default=None), max(samples for _, samples in said)


def plan_of(planned: PlannedStep, example: Batch, batches: int, sliceable: bool | None) -> Plan:
    """The plan for steps over so many batches such as this one on the GPU that the step runs on."""
    device, planner = planned.guard.step.precision.device, _planner(planned, example, batches, sliceable)
    remembered = _remembered(planned, planner, example) if planned.remembers else None
    known = None if remembered is None else remembered.recall(planner)
    if known is not None:
        return known
    planner.family = family_of(planner.job, planner.setting, batches, AHEAD)
    with trial_call(planned.model, planned.loss_fn, device=device, but_for=[planned.model]):
        made = planner.plan(batch_length(example), look_further=False)
    if remembered is not None:
        remembered.keep(made, planner)
    return made


def _remembered(planned: PlannedStep, planner: Planner, example: Batch) -> RememberedForecast | None:
    step = planned.guard.step
    settings = (planner.job.precision, step.clip_norm, planned.ema, planner.accumulation, AHEAD)
    return RememberedForecast.of(planned.model, planned.loss_fn, step.optimizer, example, planner.setting, settings)


def _planner(planned: PlannedStep, example: Batch, batches: int, sliceable: bool | None) -> Planner:
    device = planned.guard.step.precision.device
    return Planner(
        _job(planned, example), _setting(device), usable_memory(device), sliceable, accumulation=batches,
        prefetched=AHEAD, more_room=MORE_ROOM,
    )  # fmt: skip


def slice_estimate(planned: PlannedStep, example: Batch) -> int | None:
    """What a step with one sample of this batch would reserve with the model as it is now, if that can be forecast."""
    try:
        device = planned.guard.step.precision.device
        with trial_call(planned.model, planned.loss_fn, device=device, but_for=[planned.model]):
            job, setting = _job(planned, example), _setting(device)
            return forecast_trace(trace_on(job, 1, setting), job, 1, setting).reserved
    except Exception:  # as above: the run itself will show
        return None


def _setting(device: torch.device) -> Setting:
    return make_setting(card_of(inventory().gpus[device.index or 0]), None, None)


def _job(planned: PlannedStep, example: Batch) -> Job:
    length = batch_length(example)
    return make_job(
        ModelWithLoss(planned.model, partial(_traced_loss, planned.loss_fn, length)),
        lambda n: ((resized(example, length, n),), {}),
        lambda output: output,
        lambda parameters: optimizer_like(planned.guard.step.optimizer, parameters),
        _precision_of(planned),
        clip_norm=planned.guard.step.clip_norm,
        ema=planned.ema,
    )


def _traced_loss(loss_fn: LossFunction | None, length: int, copied: nn.Module, samples: Batch) -> Any:
    """The loss of a micro-batch; of one in two passes, whose loss is over the whole batch, with the memory of that."""
    if isinstance(loss_fn, TwoPass) and batch_length(samples) < length:
        return surrogate_loss(loss_fn, copied, samples, length)
    return loss_of(copied, loss_fn)(samples)


def _precision_of(planned: PlannedStep) -> str:
    """Weights that came in bfloat16 are trained as such, sums over micro-batches included, by whatever name."""
    name, types = planned.guard.step.precision.name, {parameter.dtype for parameter in planned.model.parameters()}
    return BF16_TRUE if name == "32" and types == {torch.bfloat16} else name
