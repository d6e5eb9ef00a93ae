"""Watches a script while it trains, stage by stage, and ends it when enough was seen."""

import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from brim.doctor.observation import Host, Observation, Profile, Window
from brim.doctor.stages import CEILING, EACH_TOLD, PROFILED, SAMPLED, TIMED, WARM_UP, Stage
from brim.doctor.watching.feed.batch_costs import BatchCosts
from brim.doctor.watching.feed.device_copies import DeviceCopies
from brim.doctor.watching.feed.loader_hooks import LoaderHooks
from brim.doctor.watching.file_shadow import FileShadow
from brim.doctor.watching.host_counters import HostCounters
from brim.doctor.watching.lines.line_sampler import LineSampler
from brim.doctor.watching.lines.thread_state import ThreadState, thread_state
from brim.doctor.watching.live_trials import settings_to_try
from brim.doctor.watching.meters import Meters, window
from brim.doctor.watching.model_calls import ModelCalls
from brim.doctor.watching.profiler import Profiler
from brim.doctor.watching.started_processes import StartedProcesses, busy_children, children_seconds
from brim.doctor.watching.step_hooks import StepHooks
from brim.doctor.watching.tensor_hooks import TensorHooks
from brim.doctor.watching.trial_course import TrialCourse
from brim.errors import said
from brim.hardware import usable_cores

READ_EVERY = 0.05  # seconds: asking the system takes longer than some steps
SAY_EVERY = 5.0  # seconds
SETTLING = 3  # steps after batches begin to be replayed
WHOLE_EPOCHS = 3  # beginnings of epochs, between which whole ones lie
EPOCHS_WITHIN = 6  # times the length of a stage


class ScriptWatch:
    """Everything that is hooked into the process, and what it has seen.

    Args:
        folder: Where traces, and files that the script writes, go.
        stages: What is done with the steps, one after the other.
        say: Called with the name of each stage as it begins, and the number of steps so far.
        done: Called when the last stage is over. It does not return.
        homes: Folders whose files are the user's, though they be among temporary ones.
        observes: Whether all is looked at, not only times and losses: what the script saves in training is then written
            (elsewhere), which takes the time that it takes, and every call of its model in the warm-up is seen.
        own_folders: The doctor's, written to as they are.
    """

    def __init__(
        self,
        folder: Path,
        stages: tuple[Stage, ...],
        say: Callable[[str, int], None],
        done: Callable[[], None],
        homes: tuple[str, ...] = (),
        observes: bool = False,
        own_folders: tuple[str, ...] = (),
    ) -> None:
        self.folder, self.say, self.done, self.observes = folder, say, done, observes
        self.stages = list(stages)
        self.meters = Meters()
        self.costs = BatchCosts()
        self.files = FileShadow(folder / "files", self.costs.count_open, homes, observes, own_folders)
        self.counters = HostCounters(self.meters)
        self.loaders = LoaderHooks(self.meters, self.costs)
        self.optimizers = StepHooks(self.loaders, self.on_step, self._on_backward)
        self.tensors = TensorHooks()
        self.copies = DeviceCopies()
        self.sampler = LineSampler(lambda: self.loaders.in_evaluation, lambda: self.meters.garbage)
        self.profiler = Profiler(folder / "trace.json")
        self.steps = 0
        self.process = os.getpid()
        self.windows: dict[str, Window] = {}
        self.profile: Profile | None = None
        self.trials = TrialCourse()
        self.calls = ModelCalls(self._on_call)
        self.processes = StartedProcesses()
        self.notes: list[str] = []
        self.load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        self._marks: list[Meters] = []
        self._last_read = self._first_step = self._said = 0.0
        self._graphs = self._recompiles = self._restarts = 0
        self._compiled_at = self._known_graphs = 0  # the last step in which something was compiled; graphs until then
        self._threads = torch.get_num_threads()
        self._state: ThreadState | None = None  # of the thread that trains, while steps are timed
        self._children = 0
        self._children_before: dict[int, float] = {}
        self._seen_loaders: Any = None
        self._seen_optimizers: Any = None
        self._backwards_before = 0

    def install(self) -> None:
        self.files.install()
        self.costs.install()
        self.counters.install()
        self.loaders.install()
        self.optimizers.install()
        self.processes.install()
        self.profiler.install()
        os.register_at_fork(after_in_child=self.leave_process)
        self.enter(self.stages[0])

    @property
    def is_here(self) -> bool:
        """Whether this is the process that is watched, not one that it forked."""
        return os.getpid() == self.process

    def observation(self, ended: str, error: str = "") -> Observation:
        """What was seen so far."""
        if self.stages:
            self._leave(self.stages[0], cut_short=True)
        timed = self.windows.get(TIMED)
        sampled = self.windows.get(SAMPLED)
        losses = [loss.float().reshape(()) for loss in self.optimizers.losses]
        return Observation(
            ended=ended,
            steps=self.steps,
            host=self._host(),
            timed=timed,
            sampled=sampled,
            ceiling=self.windows.get(CEILING),
            profile=self.profile,
            loaders=self._seen_loaders or self.loaders.seen(),
            optimizers=self._seen_optimizers or self.optimizers.seen(),
            lines=self.sampler.seen(),
            calls=self.tensors.seen(max(1, sampled.steps)) if sampled is not None else (),
            trials=self.trials.done(),
            training_seconds=time.perf_counter() - self._first_step if self.steps else 0.0,
            losses=tuple(float(loss) for loss in losses),
            error=error,
            notes=tuple(self.notes),
        )

    def on_step(self) -> None:
        """The script's optimizer has stepped."""
        if not self.is_here or not self.stages:
            return
        try:
            self._step_ended()
        except Exception as error:  # the doctor's own fault: the script must not be blamed for it
            traceback.print_exc()
            self.notes.append(f"measuring broke off in stage {self.stages[0].name}: {said(error)}")
            self.stages = []
            self.done()

    def _step_ended(self) -> None:
        now = time.perf_counter()
        self.files.is_training = True
        if not self.steps:
            self._first_step = now
        self.steps += 1
        stage = self.stages[0]
        if now - self._said > SAY_EVERY or self.steps <= EACH_TOLD:
            self._tell(stage)
        if stage.name == WARM_UP:
            self.sampler.note_step(sys._getframe(1))
            self.calls.begin_step()
            if not self.observes:
                self.calls.remove()  # a hook would be compiled with the modules, and they again without it
        elif stage.name == PROFILED:
            self.profiler.mark_step()
        self._mark(now)
        if self._begins_anew(stage):
            self._restarts += 1
            self.enter(stage)
            self._mark(time.perf_counter())
        elif self.is_over(stage, now - self._marks[0].now):
            self._leave(stage)
            self.stages.pop(0)
            if not self.stages:
                self.done()
            else:
                self.enter(self.stages[0])
                self._mark(time.perf_counter())

    def is_over(self, stage: Stage, seconds: float) -> bool:
        """Whether a stage was long enough. Where an epoch began among timed steps, some more are to begin: what is done
        once an epoch has its part of the time only in whole ones."""
        begun = self._marks[-1].epochs - self._marks[0].epochs
        if stage.name == TIMED and 0 < begun < WHOLE_EPOCHS and seconds < EPOCHS_WITHIN * stage.seconds:
            return False
        if self.steps - self._compiled_at < stage.settled and seconds < stage.patience:
            return False
        return stage.is_over(len(self._marks) - 1, seconds)

    def _begins_anew(self, stage: Stage) -> bool:
        """Whether something was compiled in this step, where that is not to be measured."""
        graphs = compiled_graphs()
        if graphs == self._known_graphs:
            return False
        self._compiled_at, self._known_graphs = self.steps, graphs
        return self._restarts < stage.restarts

    def _mark(self, now: float) -> None:
        self.meters.now = now
        if now - self._last_read > READ_EVERY:
            self.counters.read()
            self._last_read = now
        self._marks.append(self.meters.copy())

    def _tell(self, stage: Stage) -> None:
        """A sign of life: slow steps are not a hang."""
        self._said = time.perf_counter()
        self.say(stage.name, self.steps)

    def enter(self, stage: Stage) -> None:
        """The stage begins with the next step."""
        self._tell(stage)
        self._synchronize()
        self._marks = []
        self._last_read = 0.0
        if stage.name == WARM_UP:
            self.calls.install()
        elif stage.name == TIMED:
            self.loaders.begin_window()
            self.optimizers.begin_window()
            self.profiler.begin_window()
            self._graphs = compiled_graphs()
            self._backwards_before = self.optimizers.backwards
            self._children_before = children_seconds()
            self._state = thread_state() if self.observes else None
        elif stage.name == SAMPLED:
            if self._device() == "cuda":  # on a CPU nothing is copied or waited for, and each call would seem longer
                self.tensors.install()
            self.sampler.start()
        elif stage.name == PROFILED:
            self.profiler.start()
        elif stage.name == CEILING:
            self.loaders.replaying = True
            self.copies.install(self.loaders.kept_tensors())

    def _leave(self, stage: Stage, cut_short: bool = False) -> None:
        if self._synchronize() and self._marks:
            # The host is ahead of the device: the window ends when that has done what was launched.
            self._marks[-1].now = time.perf_counter()
        self.counters.read()
        marks = self._marks[SETTLING:] if stage.name == CEILING else self._marks
        found = window(marks)
        if found is not None:
            self.windows[stage.name] = found
        if stage.name == WARM_UP:
            self.calls.remove()
        elif stage.name == TIMED:
            self._end_of_timed(found)
        elif stage.name == SAMPLED:
            self.sampler.stop()
            self.tensors.remove()
            if self.profiler.has_other:
                self.notes.append("the script's own profiler runs, and leaves no room for another: shares are rough")
                self.stages = [each for each in self.stages if each.name != PROFILED]
                self._plan_the_rest()
        elif stage.name == PROFILED:
            self.profile = self.profiler.stop()
            self._plan_the_rest()
        elif not cut_short:
            self._end_of_trial(found)

    def _end_of_timed(self, found: Window | None) -> None:
        if self._state is not None:
            self.sampler.usual = self._state.spent()
            self._state.close()
            self._state = None
        self.loaders.probe()
        self._seen_loaders, self._seen_optimizers = self.loaders.seen(), self.optimizers.seen()
        self._recompiles = compiled_graphs() - self._graphs
        self._threads = torch.get_num_threads()
        seconds = 0.0 if found is None else found.seconds
        self._children = busy_children(self._children_before, children_seconds(), seconds)
        backwards = self.optimizers.backwards - self._backwards_before
        if found is not None and found.samples == 0 and self.calls.samples:
            # No loader: the model's input says how many samples a pass has.
            passes = max(1, round(backwards / max(1, found.steps)))
            samples = self.calls.samples * passes * found.steps
            self.windows[TIMED] = Window(**{**found.__dict__, "samples": samples})

    def _plan_the_rest(self) -> None:
        """Without a loader there is nothing to replay. Trials follow."""
        zeroes = any(optimizer.zeroes_gradients for optimizer in self.optimizers.seen())
        settings = settings_to_try(
            self.optimizers.stepping, usable_cores(), self._device(), zeroes, self.optimizers.finds_anomalies
        )
        has_ceiling = self.loaders.train is not None
        if not has_ceiling:
            self.stages = [stage for stage in self.stages if stage.name != CEILING]
        self.stages += self.trials.plan(settings, has_ceiling)

    def _end_of_trial(self, found: Window | None) -> None:
        # The host's steps tell nothing of a device's: there it is the mean that counts.
        step = 0.0 if found is None else found.step if self._device() == "cuda" else found.step_seconds[1]
        self.trials.stage_ended(step, self.stages[1] if len(self.stages) > 1 else None)

    def _on_call(self, frame: FrameType) -> None:
        if self.is_here and not self.loaders.in_evaluation:
            self.sampler.note_forward(frame)

    def _on_backward(self) -> None:
        if self.is_here and self.stages and self.stages[0].name == WARM_UP:
            self.sampler.note_backward(sys._getframe(1))

    def _synchronize(self) -> bool:
        """Wait for a device that works beside the host; whether there is one."""
        is_beside: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if is_beside:
            torch.cuda.synchronize()
        return is_beside

    def leave_process(self) -> None:
        """In a process that the script forked: it is not watched."""
        self.stages = []

    def _device(self) -> str:
        lead = self.optimizers.lead
        parameters = [] if lead is None else [p for group in lead.optimizer.param_groups for p in group["params"]]
        return parameters[0].device.type if parameters else self.optimizers.device

    def _host(self) -> Host:
        device = self._device()
        on_gpu = device == "cuda"
        reserved, split = _memory() if on_gpu else (0.0, 0.0)
        return Host(
            cores=usable_cores(),
            threads=self._threads,
            torch=torch.__version__,
            device=device,
            device_name=torch.cuda.get_device_name() if on_gpu else "",
            load=self.load,
            compiled=compiled_graphs() > 0,
            recompiles=self._recompiles,
            compile_gave_up=_has_given_up(),
            autocast=self.calls.autocast,
            finds_anomalies=self.optimizers.finds_anomalies,
            tf32=on_gpu and torch.get_float32_matmul_precision() != "highest",
            cudnn_benchmark=torch.backends.cudnn.benchmark,
            data_parallel=self.calls.data_parallel,
            allocator_retries=torch.cuda.memory_stats().get("num_alloc_retries", 0) if on_gpu else 0,
            memory_reserved=reserved,
            memory_split=split,
            memory_free=torch.cuda.mem_get_info()[0] if on_gpu else 0,
            deterministic=torch.are_deterministic_algorithms_enabled(),
            processes=self.processes.count,
            children=self._children,
        )


def _memory() -> tuple[float, float]:
    """What torch has reserved of a device's memory, and how much of that is free in pieces."""
    stats = torch.cuda.memory_stats()
    reserved = stats.get("reserved_bytes.all.peak", 0)
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    return reserved / total, stats.get("inactive_split_bytes.all.peak", 0) / max(1, reserved)


def _has_given_up() -> bool:
    """Whether torch.compile has met more shapes than it keeps graphs for."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    reasons = [] if dynamo is None else list(dynamo.counters["unimplemented"])
    return any("recompile limit" in str(reason) for reason in reasons)


def compiled_graphs() -> int:
    """Graphs that torch.compile has made in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["stats"].get("unique_graphs", 0))
