"""The graphs of a step or an evaluation: each shape of batches is eager at first, then captured, kept or refused."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import nn

from brim.data import Batch
from brim.engine.captured.inputs import Key, own_copy
from brim.engine.captured.report import CaptureReport, Refusal, StateNotRestored, Unproven
from brim.engine.captured.trial import reason_of
from brim.engine.oom.out_of_memory import is_out_of_memory, release_memory
from brim.engine.step.splitting_check import Tell

MOST_GRAPHS = 4
MOST_EVICTED = 4  # where nothing but age chooses them: batches of ever new shapes would be captured without end
MOST_SHAPES = 64  # seen without being captured: more are not remembered
MOST_POSTPONED = 3  # attempts that proved nothing, before that is taken for a refusal
MEMORY_NEEDED = "its memory was needed for other steps"
Graph = TypeVar("Graph")


class HoldsGraphs(Protocol):
    """A step or an evaluation that is captured."""

    def drop(self) -> bool: ...

    def refuse(self, reason: str) -> None: ...


@dataclass(eq=False)
class GraphCache(Generic[Graph]):
    """Counts the eager passes of each shape, keeps samples of the last ones, and holds what was captured of it.

    A shape is captured after ``warm_up`` eager passes; ``samples_kept`` of them are kept for the proof, of
    ``sampled_shapes`` at most. ``choose_evicted``: the shape whose graph goes when there are too many; without it the
    oldest, of old epochs, say.
    ``subject`` of the sentence that ``tell`` hears where everything stays eager.
    """

    model: nn.Module
    device: torch.device
    warm_up: int
    samples_kept: int
    subject: str
    tell: Tell
    sampled_shapes: int = MOST_SHAPES
    choose_evicted: Callable[[Mapping[Key, Any]], Key] | None = None
    report: CaptureReport = field(default_factory=CaptureReport)
    graphs: dict[Key, Graph] = field(default_factory=dict)
    samples: dict[Key, list[list[Batch]]] = field(default_factory=dict)
    eager_passes: dict[Key, int] = field(default_factory=dict)
    _refused: set[Key] = field(default_factory=set)
    _pool: Any = None
    _postponed: int = 0
    _evicted: int = 0

    @property
    def pool(self) -> Any:
        """The memory pool that all graphs share."""
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        return self._pool

    def note_eager_pass(self, window: Sequence[Batch], key: Key) -> int:
        """Count an eager pass that is about to be made, and keep a sample; returns the count."""
        passes = self.eager_passes[key] = self.eager_passes.get(key, 0) + 1
        if len(self.eager_passes) > MOST_SHAPES:
            self.eager_passes = dict.fromkeys(self.graphs, 0)
            self.samples.clear()
        if self.warm_up - self.samples_kept < passes <= self.warm_up:
            self._keep_sample(window, key)
        return passes

    def _keep_sample(self, window: Sequence[Batch], key: Key) -> None:
        """Where there is no memory for a sample, there is none for a graph."""
        while key not in self.samples and len(self.samples) >= self.sampled_shapes:
            self.samples.pop(next(iter(self.samples)))
        try:
            self.samples.setdefault(key, []).append(own_copy(window))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self.refuse_shape(key)

    def refuse_shape(self, key: Key) -> None:
        """This shape stays eager."""
        self.samples.pop(key, None)
        self._refused.add(key)

    def is_due(self, key: Key) -> bool:
        """Whether this shape was eager often enough to be captured, and neither it nor everything was refused."""
        is_warm = self.eager_passes.get(key, 0) >= self.warm_up
        return is_warm and key not in self._refused and not self.report.reason and self._has_room()

    def _has_room(self) -> bool:
        return len(self.graphs) < MOST_GRAPHS or self.choose_evicted is not None or self._evicted < MOST_EVICTED

    def postpone(self, key: Key) -> None:
        """Begin with this shape anew, and hold no samples of it meanwhile."""
        self.samples.pop(key, None)
        self.eager_passes[key] = 0

    def attempt(
        self, key: Key, capture: Callable[[list[list[Batch]]], Graph], undo: Callable[[], None] = lambda: None
    ) -> str:
        """Capture a shape, given its samples. Returns why that is refused, or nothing: it is captured or postponed.

        A refused shape is never tried again; one whose samples proved nothing is, after other eager passes. ``undo``
        is called once nothing holds the memory of the attempt.
        """
        is_postponed = False
        try:
            graph = capture(self.samples.pop(key, []))
        except Refusal as refusal:
            reason = str(refusal)
            is_postponed = isinstance(refusal, Unproven) and self._postponed < MOST_POSTPONED
        except StateNotRestored:
            raise
        except Exception as error:
            reason = reason_of(error, self.model)
        else:
            self._keep(key, graph)
            return ""
        # Out here the exception is gone, and with it the frames that kept the attempt alive.
        undo()
        if is_postponed:
            self._postponed += 1
            self.postpone(key)
        else:
            self.refuse_shape(key)
        if not self.graphs:
            self._pool = None
        release_memory(self.device)
        return "" if is_postponed else reason

    def _keep(self, key: Key, graph: Graph) -> None:
        if len(self.graphs) >= MOST_GRAPHS:
            leaving = self.choose_evicted(self.graphs) if self.choose_evicted else next(iter(self.graphs))
            self.graphs.pop(leaving)
            self._evicted += 1
            self._refused.add(leaving)  # or shapes that take turns would be captured at every step
        self.graphs[key] = graph
        self.report.captured, self.report.graphs = True, max(self.report.graphs, len(self.graphs))

    def stop(self, reason: str) -> None:
        """Everything is eager from here on."""
        self.report.reason, self.report.captured = reason, False
        self.samples.clear()

    def refuse(self, reason: str) -> None:
        """The same, and the user hears why."""
        self.stop(reason)
        self.tell(f"{self.subject} eager: {reason}", captured=False, reason=reason)

    def drop(self) -> bool:
        """Give the graphs and their memory back; True if there was anything to give."""
        had = bool(self.graphs)
        self.graphs.clear()
        self.samples.clear()
        self._pool = None
        if had:
            release_memory(self.device)
        return had

    def forget_shapes(self) -> None:
        """Begin with all shapes anew."""
        self.eager_passes.clear()
        self._refused.clear()


def release_graphs(holder: HoldsGraphs) -> bool:
    """Memory ran out elsewhere, and only speed needs the graphs: they are given back for good, if there are any."""
    had = holder.drop()
    if had:
        holder.refuse(MEMORY_NEEDED)
    return had
