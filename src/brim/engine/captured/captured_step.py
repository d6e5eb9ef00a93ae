"""The step that captures itself: eager at first, then proven and replayed where that is faster."""

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from brim.data import Batch, Feed
from brim.engine.captured.assumptions import Assumptions
from brim.engine.captured.graph import StepGraph
from brim.engine.captured.graph_cache import MOST_GRAPHS, GraphCache, release_graphs
from brim.engine.captured.host.host_watch import HostLook
from brim.engine.captured.inputs import BlockInputs, Key, own_copy, read_window
from brim.engine.captured.moving import ContentWatch
from brim.engine.captured.optimizers import DeviceOptimizer, LearningRates, SettingsWatch, check_rates
from brim.engine.captured.padded.padding import Padding
from brim.engine.captured.payoff.decision import NEVER, TRY
from brim.engine.captured.payoff.eager_pace import EagerPace
from brim.engine.captured.payoff.prospects import Prospects
from brim.engine.captured.report import StateNotRestored
from brim.engine.captured.trial import Trial, capture_stream, check_step, repair_generator
from brim.engine.oom.out_of_memory import is_out_of_memory
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.engine.step.splitting_check import Tell
from brim.engine.step.step_result import StepResult
from brim.engine.step.threads import StepLike
from brim.errors import ConfigError
from brim.replaced import replaced
from brim.sizes import show_bytes

WARM_UP = 3  # eager steps of a shape before it is captured
PROOF_SAMPLES = 2  # of them, kept for the proof
MOST_STRAGGLERS = 4
MOST_CHANGES = 8  # of what is computed, before capturing again is given up


@dataclass(eq=False)
class CapturedStep:
    """Makes steps by replaying a graph where one is there and nothing has changed, and by ``inner`` otherwise.

    ``looks_each_step``: whether anybody else's code runs between steps and may change what the model computes. Where
    nobody's does, :attr:`suspect` is set when somebody's did: after an evaluation, at the end of an epoch.
    ``feed``: whose batches may come to be rows of blocks that nobody writes to, once the data is on the device;
    ``ring``: for how many steps a loss must last (without it, for ever). ``check_shape`` raises where a shape must not
    be captured, ``gain_is_of`` says what the gain does not count. ``refuses_at_once``: or only :attr:`report` says so.
    ``prospects``: whether an attempt would pay; without them, and where capturing is required, every shape is tried.
    ``padding``: pads batches on to a few lengths, for each of which there is a graph; eager steps take them as they
    come.
    """

    inner: StepLike
    eager: EagerStep
    model: nn.Module
    loss_fn: Any
    required: bool = False
    tell: Tell = lambda sentence, **facts: None
    guard: GuardedStep | None = None
    looks_each_step: bool = False
    rates_move: bool = False
    feed: Feed | None = None
    ring: int | None = None
    graph_type: Callable[..., StepGraph] = StepGraph
    gain_is_of: str = ""
    check_shape: Callable[[Key], None] = lambda key: None
    refuses_at_once: bool = True
    prospects: Prospects | None = None
    padding: Padding | None = None

    def __post_init__(self) -> None:
        if self.guard is not None:
            # Weakly: a graph in a circle of references may be collected in a forked process, where that is fatal.
            own = weakref.ref(self)
            self.guard.memory_reclaimers.append(lambda: (step := own()) is not None and release_graphs(step))
        self.suspect = False
        self.cache: GraphCache[StepGraph] = GraphCache(
            self.model, self.eager.precision.device, WARM_UP, PROOF_SAMPLES, "steps are", self.tell,
            choose_evicted=None if self.prospects is None else self.prospects.least_used,
        )  # fmt: skip
        self.report, self.graphs = self.cache.report, self.cache.graphs
        self._shown: StepGraph | None = None  # whose gradients the parameters have
        self._rates: LearningRates | None = None
        self._on_device: DeviceOptimizer | None = None  # from the first graph on
        self._scale = 0.0
        self._changes = 0
        self._contents: ContentWatch | None = None  # of tensors that hardly ever move, before the last eager steps
        self._assumptions: Assumptions | None = None  # of the graphs
        self._settings = SettingsWatch(self.eager.optimizer)
        self._replays_before = 0  # the graphs that there are
        self._has_told_of_waiting = False

    def __call__(self, window: Sequence[Batch]) -> StepResult:
        if self.report.reason:
            return self.eagerly(window)
        if self.padding is not None and self.padding.is_learning:
            self._learn_padding(window)
            return self.eagerly(window)
        tensors, key = read_window(window) if self.padding is None else self.padding.read(window)
        if self.prospects is not None:
            self.prospects.note_step(key)
        has_graph = key in self.graphs and not self.drop_stale_graphs()
        if has_graph or (self.is_due(window, key) and self.consider(key) and self.capture(window, key)):
            return self.replay(self.graphs[key], tensors)
        return self.eagerly(window, key)

    def _learn_padding(self, window: Sequence[Batch]) -> None:
        """Look at one more of the first batches; what comes of them is said once."""
        assert self.padding is not None
        self.padding.learn(window)
        if self.padding.reason:
            self.tell(f"batches are not padded to other lengths: {self.padding.reason}")
        elif self.padding.lengths:
            lengths = ", ".join(map(str, self.padding.lengths))
            self.tell(f"captured steps pad batches to {lengths} positions, and eager steps take them as they come")

    @property
    def in_blocks(self) -> bool:
        """Whether batches are rows of blocks, which nothing writes to once they are handed out."""
        return bool(getattr(self.feed, "hands_out_blocks", False))

    def replay(self, graph: StepGraph, tensors: list[Tensor]) -> StepResult:
        """A step by a graph, for a batch of these tensors."""
        if graph is not self._shown or not graph.shows_gradients():
            graph.show_gradients()
            self._shown = graph
        graph.inputs.fill(tensors)
        loss = graph.replay()
        self.eager.numbers = graph.logged()
        self.report.replays += 1
        precision = self.eager.precision
        if not precision.tells_if_stepped or precision.scaler is None:
            return StepResult(loss)
        before = self._scale
        self._scale = precision.scaler.get_scale()  # the host has to wait: a schedule must not advance on an overflow
        return StepResult(loss, self._scale >= before)

    def is_due(self, window: Sequence[Batch], key: Key) -> bool:
        """Whether this shape is to be captured: micro-batches have their size, and batches come as they will.

        The first ones may have been read before the data was on the device.
        """
        if not self.cache.is_due(key) or (self.guard is not None and not self.guard.is_settled):
            return False
        waited = self.cache.eager_passes[key] >= WARM_UP + MOST_STRAGGLERS
        return not self.in_blocks or waited or BlockInputs.suit(window)

    def consider(self, key: Key) -> bool:
        """Decide whether this shape is tried now, and have it said where it is not: for now, or never."""
        if self.prospects is None or self.required:
            return True
        decision = self.prospects.decide(key, self.graphs, MOST_GRAPHS)
        if decision.verdict == NEVER and not self.graphs:
            self.refuse(decision.reason)
        elif decision.verdict != TRY and decision.reason:
            self.cache.postpone(key)
            if not self._has_told_of_waiting:
                self._has_told_of_waiting = True
                self.tell(f"batches of a shape that comes too seldom are eager: {decision.reason}", captured=False)
        return decision.verdict == TRY

    def eagerly(self, window: Sequence[Batch], key: Key | None = None) -> StepResult:
        """An eager step; ``key``: of the shape that it counts for, where that may come to be captured."""
        self.report.eager += 1
        self._refuse_moving_settings()
        is_watched = self._note_eager_step(window, key) == WARM_UP and not self.graphs
        self._shown = None
        pace = self._pace()
        if pace is not None:
            pace.begins_step()
        result = self._watched_step(window) if is_watched else self.inner(window)
        if pace is not None:
            pace.ends_step()
        precision = self.eager.precision
        if not self.report.reason and precision.tells_if_stepped and precision.scaler is not None:
            self._scale = precision.scaler.get_scale()
        return result

    def _pace(self) -> EagerPace | None:
        """What times eager steps while it matters: those that a graph would replace, and not those before them."""
        if self.prospects is None or self.graphs or self.report.reason:
            return None
        if self.guard is not None and not self.guard.is_settled:
            self.prospects.pace.forget()
            return None
        return self.prospects.pace

    def _refuse_moving_settings(self) -> None:
        """Nothing is tried where each graph would be out of date by the next step."""
        if not self.report.reason:
            why = self._settings.look(self.report.eager + self.report.replays)
            if why is not None:
                self.refuse(why)

    def _note_eager_step(self, window: Sequence[Batch], key: Key | None) -> int:
        """Count it, and keep what the proof needs of the last ones; returns how many of this shape there were."""
        if key is None or key in self.graphs or self.report.reason:
            return 0
        steps = self.cache.note_eager_pass(window, key)
        try:
            if WARM_UP - PROOF_SAMPLES < steps <= WARM_UP and key in self.cache.samples:
                self._contents = self._contents or ContentWatch(self.model, self.loss_fn)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self.cache.refuse_shape(key)
        return steps

    def _watched_step(self, window: Sequence[Batch]) -> StepResult:
        """An eager step that counts, and shows whether it does anything on the host that a graph would not repeat.

        What is found out here is found out without a trial, which would have to be undone.
        """
        failures = 0 if self.guard is None else self.guard.failures
        look = HostLook(self.model, self.loss_fn)
        result = self.inner(window)
        ran_out = self.guard is not None and self.guard.failures != failures  # what was done about it is no step's
        why = None if ran_out else look.why_not_repeated()
        if why is not None:
            self.refuse(why)
        return result

    def drop_stale_graphs(self) -> bool:
        """Drop the graphs if they do not compute what an eager step would compute now; True where that was so."""
        why = self._follow_changes()
        if why is None:
            return False
        self._changes += 1
        shapes = list(self.graphs)
        self.drop()
        lived = self.report.replays - self._replays_before
        is_wasteful = self.prospects is not None and not self.required and self.prospects.note_drop(lived)
        if self._changes > MOST_CHANGES or is_wasteful:
            self.refuse(f"what is computed changes again and again: {why}")
        else:
            self.tell(f"captured anew, because {why}")
            self.cache.eager_passes.update(dict.fromkeys(shapes, WARM_UP - 1))  # one more eager step
        return True

    def _follow_changes(self) -> str | None:
        """Take over the learning rate, which graphs can follow; why they are stale, if something else has moved."""
        assert self._assumptions is not None
        why = self._assumptions.why_broken()
        if why is None and self._rates is not None and not self._rates.follow():
            why, self.rates_move = "the learning rate moved", True
        if why is None and (self.suspect or self.looks_each_step):
            self.suspect = False
            why = self._assumptions.why_broken_on_host()
        return why

    def drop(self) -> bool:
        """Give the graphs and their memory back; True if there was anything to give."""
        self._shown = self._rates = self._contents = self._assumptions = None
        if self.graphs:
            self.eager.clear_gradients()  # they lie in the graphs' memory
        return self.cache.drop()

    def refuse(self, reason: str) -> None:
        """Steps are eager from here on."""
        if self.refuses_at_once:
            self.give_up(reason)
        else:
            self.cache.stop(reason)

    def give_up(self, reason: str) -> None:
        """The same, and everybody hears of it."""
        if self.required:
            self.cache.stop(reason)
            raise ConfigError(f"capture='require', and the step cannot be captured: {reason}")
        self.cache.refuse(reason)

    def put_optimizer_back(self) -> None:
        """To where it was before the first graph: its kernels are those of eager steps again."""
        if self._on_device is not None:
            self._on_device.undo()
            self._on_device = None

    def capture(self, window: Sequence[Batch], key: Key) -> bool:
        """Try it, prove it, and leave everything as it was; False where it is refused or postponed.

        Beside graphs of before a change none is captured: they would be taken for up to date.
        """
        if self.graphs and self.drop_stale_graphs():
            return False
        began, was_on_device = time.perf_counter(), self._on_device is not None
        if self.guard is not None:
            self.guard.watch.before_attempt()
        try:
            reason = self.cache.attempt(
                key, lambda samples: self._attempt(window, samples), lambda: self._undo_attempt(was_on_device)
            )
        finally:
            self._contents = None
        self._note_attempt(key, time.perf_counter() - began)
        if reason and not self.graphs:
            self.refuse(reason)
        if key not in self.graphs:
            return False
        self._assumptions = Assumptions(self.eager, self.model, self.loss_fn)
        scaler = self.eager.precision.scaler
        self._scale = 0.0 if scaler is None else scaler.get_scale()
        self.graphs[key].is_on_trial = False
        return True

    def _note_attempt(self, key: Key, seconds: float) -> None:
        """What it took; a failed one has given its memory back, so its peak does not count either."""
        graph = self.graphs.get(key)
        self.report.seconds += seconds
        self._replays_before = self.report.replays
        if self.prospects is not None:
            self.prospects.note_attempt(seconds, None if graph is None else graph.saved_seconds)
        if self.guard is not None:
            (self.guard.watch.attempt_failed if graph is None else self.guard.watch.attempt_kept)()

    def _attempt(self, window: Sequence[Batch], samples: list[list[Batch]]) -> StepGraph:
        """A graph for windows like this one, proven; the optimizer's state is on the device from here on.

        Raises where it is refused. The training state is as before.
        """
        optimizer, precision = self.eager.optimizer, self.eager.precision
        check_step(self.eager, self.model, window)
        self.check_shape(read_window(window)[1])
        if self.rates_move:
            check_rates(optimizer)
        moved = DeviceOptimizer(optimizer)
        self._on_device = self._on_device or moved
        self._rates = self._rates or LearningRates(optimizer, precision.device, self.rates_move)
        self._rates.follow()
        windows, unpadded = [*samples, own_copy(window)], []
        if self.padding is not None and self.padding.lengths:
            windows, unpadded = [self.padding.padded(one) for one in windows], windows
            window = windows[-1]
        # The batch as it came, where it is not padded: of a copy nobody could tell that it is rows of a block.
        graph = self.graph_type(self.eager, window, self._rates, self.in_blocks, self.ring)
        stream, moving = capture_stream(precision.device), self._contents.moved() if self._contents else {}
        # Whether a step was skipped is not asked meanwhile: the host would wait for the answer.
        with replaced((precision, "tells_if_stepped", False)):
            trial = Trial(
                graph, windows, self.model, self.loss_fn, stream, self.cache.pool, self._on_device, moving,
                unpadded,
            )  # fmt: skip
            try:
                trial.run(self.required)
                graph.saved_seconds = trial.eager_seconds - trial.captured_seconds
                self._announce(trial)
            finally:
                self._take_back(trial)
        return graph

    def _take_back(self, trial: Trial) -> None:
        try:
            trial.take_back()
        except Exception as error:
            raise StateNotRestored(
                "the training state could not be restored after a trial of a captured step"
            ) from error

    def _undo_attempt(self, was_on_device: bool) -> None:
        """After one that failed: gradients lie in its memory, and the optimizer goes back to where it was."""
        self.eager.clear_gradients()
        if not was_on_device:
            self.put_optimizer_back()
        if not self.graphs:
            self._rates = None
        repair_generator(self.eager.precision.device)

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
