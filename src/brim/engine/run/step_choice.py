"""Which step a run makes, by where it runs and what it was told."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from brim.engine.calling.compiler import Compiler
from brim.engine.captured import CapturedOverRanks, CapturedStep, EagerPace, Padding, Prospects
from brim.engine.captured.trial import is_compiled
from brim.engine.compiled import CompiledLoss, CompiledStep, CompileReport
from brim.engine.components.loss import CountedLoss
from brim.engine.components.settings import ADAPTIVE
from brim.engine.components.two_pass import TwoPass
from brim.engine.run.findings import Findings
from brim.engine.run.strategy import DDP, FSDP, SINGLE
from brim.engine.run.training_setup import TrainingSetup
from brim.engine.run_state.progress import Progress
from brim.engine.run_state.training_state import TrainingState
from brim.engine.shares.device_events import CudaEvents
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.engine.step.replicated_step import ReplicatedStep
from brim.engine.step.threads import StepLike, with_threads
from brim.errors import ConfigError
from brim.hardware import usable_cores

if TYPE_CHECKING:
    from brim.engine.fsdp import ShardedTraining
    from brim.engine.fsdp.sharded_guard import ShardedGuard

SHARDED = "models in shards, and copies in one process, are computed eagerly in this version"
OFF = "there is no CUDA GPU, or capture='off'"
NOT_CAPTURABLE = "steps of copies in one process, of shards, and of a process group that is not brim's are not captured"


@dataclass(frozen=True)
class StepChoice:
    """By what a trainer trains with."""

    setup: TrainingSetup

    @property
    def is_capturable(self) -> bool:
        """Whether steps of this kind can be captured at all."""
        return self.setup.strategy == SINGLE or (self.setup.strategy == DDP and self.setup.ranks.group is not None)

    @property
    def may_capture(self) -> bool:
        """Whether they may be, here."""
        return self.setup.device.type == "cuda" and self.setup.settings.capture != "off" and self.is_capturable

    @property
    def why_not_captured(self) -> str:
        return OFF if self.is_capturable else NOT_CAPTURABLE

    def uncaptured(
        self, state: TrainingState, findings: Findings, sharded: "ShardedTraining | None"
    ) -> tuple[StepLike, "GuardedStep | ShardedGuard"]:
        """The step with everything around it, and the guarded one within.

        Around it is a forecast, or a trial of thread counts where the CPU computes and nobody has decided.
        """
        setup, settings = self.setup, self.setup.settings
        guard: GuardedStep | ShardedGuard
        guard = self._guarded(state, findings) if sharded is None else self._sharded(state, findings, sharded)
        found = state.progress.micro_batch
        if settings.fixed_micro_batch is None and found is not None:  # the run that this one continues found it
            guard.step.micro_batch = found
        fits = settings.fit == "auto"
        is_planned = (settings.fixed_micro_batch is None or fits) and setup.strategy in (SINGLE, DDP)
        if setup.device.type == "cuda" and is_planned and isinstance(guard, GuardedStep):
            from brim.engine.step.planned_step import PlannedStep  # with all of the forecast: GPUs alone need it

            remembers = settings.forecast == "auto"
            planned = PlannedStep(
                guard, setup.model, setup.loss_fn, settings.sliceable, findings.planned, settings.ema,
                remembers=remembers, fits=fits, searches=findings.notes.search,
            )  # fmt: skip
            return planned, guard
        if setup.device.type != "cpu":
            return guard, guard
        return with_threads(guard, self._threads(state), findings.threads, self._is_adaptive), guard

    def compiled(
        self, step: StepLike, guard: "GuardedStep | ShardedGuard", findings: Findings, total_steps: int | None
    ) -> StepLike:
        """The step that decides by itself whether it is compiled, where that is asked for."""
        setup, compute = self.setup, self.setup.compute
        compiler = Compiler.of(setup.settings.compile)
        if compiler is None or not compiler.is_auto:
            if compiler is not None and setup.strategy == FSDP and setup.ranks.is_first:
                setup.journal.warn(f"compile={setup.settings.compile!r} has no effect: {SHARDED}", "compile")
            return step
        why_not = self._why_not_compiled()
        if why_not is None and isinstance(guard, GuardedStep) and isinstance(compute, CountedLoss):
            left = partial(steps_left, total_steps, findings.progress)
            made = CompiledStep(step, guard, compute, compiler, left, findings.notes.compile)
            findings.compiled = made.report
            return made
        findings.compiled = CompileReport(reason=why_not or SHARDED)
        findings.notes.compile(f"steps are not compiled: {findings.compiled.reason}", **findings.compiled.as_json())
        return step

    def _why_not_compiled(self) -> str | None:
        """What keeps ``compile="auto"`` from trying."""
        setup = self.setup
        if setup.settings.deterministic:
            return "deterministic=True, and a choice by timing could be another one on another day"
        if setup.strategy == FSDP:
            return SHARDED
        if not setup.ranks.is_alone:
            return "ranks would have to decide together; compile=True compiles on all of them"
        if isinstance(setup.loss_fn, TwoPass):
            return "the loss is computed in two passes (brim.TwoPass)"
        if setup.settings.logits == "chunked":
            return "logits='chunked' is not followed by torch.compile"
        if is_compiled(setup.compute, setup.model):
            return "the model is compiled already"
        return None if setup.device.type in ("cpu", "cuda") else f"it was never tried on {setup.device.type}"

    def captured(
        self,
        step: StepLike,
        guard: "GuardedStep | ShardedGuard",
        findings: Findings,
        lr_moves: bool,
        has_onlookers: bool,
        total_steps: int | None = None,
    ) -> tuple[StepLike, CapturedStep | None]:
        """The step as it is called, and the part that captures it, where there is a GPU and nobody said no."""
        is_required = self.setup.settings.capture == "require"
        if is_required and not self.is_capturable:
            raise ConfigError(f"capture='require', and {NOT_CAPTURABLE}")
        if not self.may_capture or not isinstance(guard, GuardedStep):
            return step, None
        make = partial(
            CapturedStep,
            step,
            guard.step,
            self.setup.model,
            self.setup.loss_fn,
            is_required,
            findings.notes.capture,
            guard=guard,
            looks_each_step=has_onlookers,
            rates_move=lr_moves,
            feed=findings.place.feed,
            ring=None if has_onlookers else self.setup.settings.log_every + 1,
        )
        is_padded = self.setup.settings.capture == "padded"
        if guard.replicated is None:
            padding = Padding() if is_padded else None
            captured = make(prospects=self._prospects(total_steps, findings), padding=padding)
            return captured, captured
        if is_padded:
            self.setup.journal.warn("over ranks, batches are captured as they come and not padded", "capture")
        over_ranks = CapturedOverRanks(guard.replicated, make)
        return over_ranks, over_ranks.captured

    def _guarded(self, state: TrainingState, findings: Findings) -> GuardedStep:
        setup, settings = self.setup, self.setup.settings
        compute, compiler = setup.compute, Compiler.of(settings.compile)
        if isinstance(compute, CountedLoss):
            by_name = compiler is not None and not compiler.is_auto
            compute.run = CompiledLoss(compute, compiler) if compiler and by_name else compute.plain
        step = EagerStep(compute, state.optimizer, setup.precision, settings.fixed_micro_batch, settings.clip_norm)
        replicated = None if setup.ranks.is_alone else ReplicatedStep(step, setup.ranks)
        guard = GuardedStep(
            step, setup.model, findings.shortage, settings.sliceable, settings.checkpointing, replicated
        )
        guard.splitting.on_verdict = findings.notes.loss_verdict
        return guard

    def _sharded(self, state: TrainingState, findings: Findings, sharded: "ShardedTraining") -> "ShardedGuard":
        return sharded.guard(state.optimizer, findings.shortage, findings.keep_micro_batch, self.setup.settings)

    def _prospects(self, total_steps: int | None, findings: Findings) -> Prospects | None:
        """What decides whether capturing pays; None to try in any case."""
        if self.setup.settings.capture == "require":
            return None
        pace = EagerPace(CudaEvents(self.setup.device))
        return Prospects(pace, partial(steps_left, total_steps, findings.progress))

    @property
    def _is_adaptive(self) -> bool:
        """Whether the number of threads may change in the course of the run, which changes the rounding."""
        settings = self.setup.settings
        return settings.threads == ADAPTIVE and self.setup.ranks.is_alone and not settings.deterministic

    def _threads(self, state: TrainingState) -> int | None:
        """How many the CPU computes with; None to find out."""
        settings, ranks = self.setup.settings, self.setup.ranks
        asked = settings.threads
        threads = state.progress.threads if isinstance(asked, str) else asked
        if not ranks.is_alone and threads is None:  # ranks that find out side by side are in each other's way
            return max(1, usable_cores() // ranks.identity.local_world)
        # A trial can end differently on another day, and threads change the rounding: not in a deterministic run.
        if threads is None and settings.deterministic:
            return torch.get_num_threads()
        return threads


def steps_left(total: int | None, progress: Progress) -> int | None:
    """Of a run, where it is known how many it has."""
    return None if total is None else max(0, total - progress.step)
