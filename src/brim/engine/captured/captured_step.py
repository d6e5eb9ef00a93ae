"""The step that captures itself: eager at first, then proven and replayed where that is faster."""

import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from brim.data import Batch
from brim.engine.captured.graph import StepGraph
from brim.engine.captured.host.host_state import HostLook
from brim.engine.captured.host.host_watch import HostWatch
from brim.engine.captured.inputs import Key, own_copy, read_window
from brim.engine.captured.moving import ContentWatch
from brim.engine.captured.optimizers import DeviceOptimizer, LearningRates, check_rates, settings_of
from brim.engine.captured.report import CaptureReport, Refusal
from brim.engine.captured.static_inputs import BlockInputs
from brim.engine.captured.trial import Trial, capture_stream, check_step, reason_of, repair_generator
from brim.engine.components.loss import counted_in
from brim.engine.oom.out_of_memory import is_out_of_memory, release_memory
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.engine.step.step_result import StepResult
from brim.engine.step.threads import StepLike
from brim.errors import ConfigError
from brim.memory.sizes import show_bytes

WARM_UP = 3  # eager steps of a shape before it is captured
MOST_STRAGGLERS = 4
MOST_GRAPHS = 4
MOST_SHAPES = 64  # seen without being captured: more are not remembered
MOST_CHANGES = 8  # of what is computed, before capturing again is given up
Tell = Callable[..., None]


class CapturedStep:
    """Makes steps by replaying a graph where one is there and nothing has changed, and by ``inner`` otherwise.

    ``looks_each_step``: whether anybody else's code runs between steps and may change what the model computes. Where
    nobody's does, :attr:`suspect` is set when somebody's did: after an evaluation, at the end of an epoch.
    ``in_blocks`` says whether batches are rows of blocks that nobody writes to; ``ring`` for how many steps a loss must
    last (without it, for ever).
    """

    graph_type: Callable[..., StepGraph] = StepGraph
    gain_is_of = ""  # what the gain does not count

    def __init__(
        self,
        inner: StepLike,
        eager: EagerStep,
        model: nn.Module,
        loss_fn: Any,
        required: bool = False,
        tell: Tell = lambda sentence, **facts: None,
        guard: GuardedStep | None = None,
        looks_each_step: bool = False,
        rates_move: bool = False,
        in_blocks: Callable[[], bool] = lambda: False,
        ring: int | None = None,
    ) -> None:
        self.inner = inner
        self.eager = eager
        self.model = model
        self.loss_fn = loss_fn
        self.required = required
        self.tell = tell
        self.guard = guard
        if guard is not None:
            # Weakly: a graph in a circle of references may be collected in a forked process, where that is fatal.
            own = weakref.ref(self)
            guard.memory_reclaimers.append(lambda: (step := own()) is not None and step.give_way())
        self.looks_each_step = looks_each_step
        self.in_blocks = in_blocks
        self.ring = ring
        self.suspect = False
        self.report = CaptureReport()
        self.graphs: dict[Key, StepGraph] = {}
        self._shown: StepGraph | None = None  # whose gradients the parameters have
        self._seen: dict[Key, int] = {}
        self._samples: dict[Key, list[list[Batch]]] = {}
        self._never: set[Key] = set()
        self._pool: Any = None
        self._rates: LearningRates | None = None
        self._on_device: DeviceOptimizer | None = None  # from the first graph on
        self.rates_move = rates_move
        self._scale = 0.0
        self._changes = 0
        self._contents: ContentWatch | None = None  # of tensors that hardly ever move, before the last eager steps
        self._is_watched = False  # the eager step that is about to be made
        self._parameters = list(model.parameters())
        self._modules = list(model.modules())

    def __call__(self, window: Sequence[Batch]) -> StepResult:
        if self.report.reason:
            return self._eagerly(window)
        tensors, key = read_window(window)
        if self._has_graph(key) or (self._wishes_to_capture(window, key) and self._capture(window, key)):
            return self._replay(self.graphs[key], tensors)
        return self._eagerly(window)

    def _has_graph(self, key: Key) -> bool:
        """Whether this shape has a graph that still computes what an eager step would."""
        return key in self.graphs and self._is_as_captured()

    def _replay(self, graph: StepGraph, tensors: list[Tensor]) -> StepResult:
        if graph is not self._shown or not graph.shows_gradients():
            graph.show_gradients()
            self._shown = graph
        graph.inputs.fill(tensors)
        loss = graph.replay()
        self.report.replays += 1
        precision = self.eager.precision
        if not precision.tells_if_stepped or precision.scaler is None:
            return StepResult(loss)
        before = self._scale
        self._scale = precision.scaler.get_scale()  # the host has to wait: a schedule must not advance on an overflow
        return StepResult(loss, self._scale >= before)

    def _wishes_to_capture(self, window: Sequence[Batch], key: Key) -> bool:
        """Whether this shape has come often enough, and is not one that cannot be captured."""
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if len(self._seen) > MOST_SHAPES:
            self._seen = dict.fromkeys(self.graphs, 0)
            self._samples.clear()
        if WARM_UP - 2 < seen <= WARM_UP:
            self._keep_sample(window, key)
        self._is_watched = seen == WARM_UP and not self.graphs
        if seen <= WARM_UP or key in self._never:
            return False
        return self._is_settled(window, seen) and self._may_capture()

    def _keep_sample(self, window: Sequence[Batch], key: Key) -> None:
        """For the proof; where there is no memory for it, there is none for a graph."""
        try:
            self._samples.setdefault(key, []).append(own_copy(window))
            self._contents = self._contents or ContentWatch(self.model, self.loss_fn)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._samples.pop(key, None)
            self._never.add(key)

    def _eagerly(self, window: Sequence[Batch]) -> StepResult:
        self.report.eager += 1
        self._shown = None
        result = self._watched_step(window) if self._is_watched else self.inner(window)
        if self.report.reason:  # nobody will ask for the scale
            return result
        precision = self.eager.precision
        if precision.tells_if_stepped and precision.scaler is not None:
            self._scale = precision.scaler.get_scale()
        return result

    def _watched_step(self, window: Sequence[Batch]) -> StepResult:
        """An eager step that counts, and shows whether it does anything on the host that a graph would not repeat.

        What is found out here is found out without a trial, which would have to be undone.
        """
        self._is_watched = False
        failures = 0 if self.guard is None else self.guard.failures
        look = HostLook(self.model, self.loss_fn)
        result = self.inner(window)
        ran_out = self.guard is not None and self.guard.failures != failures  # what was done about it is no step's
        why = None if ran_out else look.why_not_repeated()
        if why is not None:
            self._refuse(why)
        return result

    def _may_capture(self) -> bool:
        """Not once it is given up, nor beside graphs of before a change: they would be taken for up to date."""
        return not self.report.reason and (not self.graphs or self._is_as_captured())

    def _is_settled(self, window: Sequence[Batch], seen: int) -> bool:
        """Whether slices have their size and batches come as they will.

        The first ones may have been read before the data was on the device.
        """
        if self.guard is not None and not self.guard.is_settled:
            return False
        return not self.in_blocks() or BlockInputs.suit(window) or seen > WARM_UP + MOST_STRAGGLERS

    def _is_as_captured(self) -> bool:
        """Whether a graph still computes what an eager step would compute now."""
        why = None
        if self._flags() != self._captured_flags:
            why = "a part of the model was frozen, thawed or switched between training and evaluation"
        elif self.eager.optimizer.param_groups is not self._groups or self._settings() != self._captured_settings:
            why = "the settings of the optimizer changed"
        elif self._rates is not None and not self._rates.follow():
            why, self.rates_move = "the learning rate moved", True
        elif self.suspect or self.looks_each_step:
            self.suspect = False
            changed = self._captured_host.what_changed()
            why = None if changed is None else f"{changed} changed"
        if why is None:
            return True
        self._start_over(why)
        return False

    def _start_over(self, why: str) -> None:
        """What is computed has changed: capture again, after an eager step."""
        self._changes += 1
        keys = list(self.graphs)
        self.drop()
        if self._changes > MOST_CHANGES:
            self._refuse(f"what is computed changes again and again: {why}")
            return
        self.tell(f"captured anew, because {why}")
        self._seen.update(dict.fromkeys(keys, WARM_UP - 1))

    def drop(self) -> bool:
        """Give the graphs and their memory back; True if there was anything to give."""
        had = bool(self.graphs)
        self.graphs.clear()
        self._samples.clear()
        self._shown = self._rates = self._pool = self._contents = None
        if had:
            self.eager.clear_gradients()  # they lie in the graphs' memory
            release_memory(self.eager.precision.device)
        return had

    def give_way(self) -> bool:
        """Memory ran out elsewhere: graphs are a luxury."""
        if not self.drop():
            return False
        self._refuse("its memory was needed for other steps")
        return True

    def _refuse(self, reason: str) -> None:
        self.report.reason, self.report.captured = reason, False
        self._samples.clear()
        if self.required:
            raise ConfigError(f"capture='require', and the step cannot be captured: {reason}")
        self.tell(f"steps are eager: {reason}", captured=False, reason=reason)

    def _capture(self, window: Sequence[Batch], key: Key) -> bool:
        """Try it, prove it, and leave everything as it was; False where it is refused."""
        began = time.perf_counter()
        graph, reason = self._attempt(window, key)
        self.report.seconds += time.perf_counter() - began
        self._samples.pop(key, None)
        if graph is None:
            self._never.add(key)
            if not self.graphs:
                self._refuse(reason)
            return False
        if len(self.graphs) >= MOST_GRAPHS:  # the one that was captured first goes: shapes of old epochs
            oldest = next(iter(self.graphs))
            self.graphs.pop(oldest)
            self._never.add(oldest)  # or shapes that take turns would be captured at every step
        self.graphs[key] = graph
        self._remember()
        self.report.captured, self.report.graphs = True, max(self.report.graphs, len(self.graphs))
        graph.is_on_trial = False
        return True

    def _attempt(self, window: Sequence[Batch], key: Key) -> tuple[StepGraph | None, str]:
        optimizer, precision = self.eager.optimizer, self.eager.precision
        told, precision.tells_if_stepped = precision.tells_if_stepped, False  # asking would make the host wait
        on_device: DeviceOptimizer | None = None
        trial: Trial | None = None
        graph: StepGraph | None = None
        try:
            self._check(window)
            if self.rates_move:
                check_rates(optimizer)
            on_device = DeviceOptimizer(optimizer)
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            self._rates = self._rates or LearningRates(optimizer, precision.device, self.rates_move)
            self._rates.follow()
            graph = self.graph_type(self.eager, window, self._rates, self.in_blocks(), self.ring)
            windows = [*self._samples.get(key, []), own_copy(window)]
            stream, moving = capture_stream(precision.device), self._contents.moved() if self._contents else {}
            own = self._on_device or on_device
            trial = Trial(graph, windows, self.model, self.loss_fn, stream, self._pool, own, moving)
            trial.run(self.required)
            self._announce(trial)
            self._on_device = self._on_device or on_device
            return graph, ""
        except Refusal as refusal:
            reason = str(refusal)
        except Exception as error:
            reason = reason_of(error, self.model)
        finally:
            precision.tells_if_stepped = told
            if trial is not None:
                trial.take_back()
            self._contents = None
        del graph, trial  # and with them the memory that they hold
        self.eager.clear_gradients()
        if on_device is not None and self._on_device is None:
            on_device.undo()
        if not self.graphs:
            self._pool = self._rates = None
        repair_generator(precision.device)
        release_memory(precision.device)
        return None, reason

    def _check(self, window: Sequence[Batch]) -> None:
        """Refuse what can be told without trying."""
        check_step(self.eager, self.model, window)

    def _announce(self, trial: Trial) -> None:
        eager, captured = trial.eager_seconds, trial.captured_seconds
        gain = eager / captured
        self.report.gain = self.report.gain or gain
        shapes = "" if not self.graphs else f", graph {len(self.graphs) + 1}"
        self.tell(
            f"the whole step is captured as a CUDA graph: {gain:.1f} times as fast ({captured * 1e3:.2f} instead of "
            f"{eager * 1e3:.2f} ms; proven over {len(trial.windows)} steps: {trial.likeness}; it keeps "
            f"{show_bytes(trial.pool_bytes)} of memory{self.gain_is_of and '; ' + self.gain_is_of}){shapes}",
            captured=True,
            bytes=trial.pool_bytes,
            gain=round(gain, 3),
            likeness=str(trial.likeness),
        )

    def _remember(self) -> None:
        """What must stay as it is for the graphs to be right."""
        self._parameters, self._modules = list(self.model.parameters()), list(self.model.modules())
        self._captured_flags = self._flags()
        self._groups = self.eager.optimizer.param_groups
        self._captured_settings = self._settings()
        self._captured_host = HostWatch(self.model, self.loss_fn)
        scaler = self.eager.precision.scaler
        self._scale = 0.0 if scaler is None else scaler.get_scale()

    def _flags(self) -> list[bool]:
        return [p.requires_grad for p in self._parameters] + [module.training for module in self._modules]

    def _settings(self) -> list[Any]:
        counted = counted_in(self.eager.compute)
        rule = None if counted is None else counted.rules
        return [self.eager.skip_nonfinite, self.eager.clip_norm, rule, *settings_of(self.eager.optimizer)]
