"""The captured step where several ranks train together: all of them replay a step, or none does."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from brim.data import Batch, batch_length
from brim.engine.captured.inputs import read_window
from brim.engine.captured.report import Refusal
from brim.engine.captured.step import WARM_UP, CapturedStep
from brim.engine.captured.two_halves import TwoHalves
from brim.engine.ranks import Ranks, Verdict

ELSEWHERE = "another rank cannot capture its step; its own log says why"


class CapturedOverRanks(CapturedStep):
    """Before each step the hosts ask each other whether all of them can replay it; the GPUs are not waited for.

    Each rank captures and proves by itself. Until all have, and for batches that one has no graph for, all are eager.
    Where one can never capture, nobody asks any more.
    """

    graph_type = TwoHalves

    def __init__(self, ranks: Ranks, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.ranks = ranks
        self._calls = 0
        self._is_over = False  # all know that it has come to nothing

    def __call__(self, window: Sequence[Batch]) -> Tensor:
        if self._is_over:
            return self._eagerly(window)
        self._calls += 1
        tensors, key = read_window(window)
        usable = not self.report.reason and all(batch_length(batch) for batch in window)
        has_graph = usable and self._has_graph(key)
        wishes = usable and not has_graph and self._wishes_to_capture(window, key)
        if self._calls <= WARM_UP:  # on all ranks: in these steps they find out how long the others may take
            return self._eagerly(window)
        signalled, stops = self.eager.wishes()
        answers = self.ranks.count_yes([bool(self.report.reason), has_graph, has_graph or wishes, signalled, stops])
        refused, replaying, ready, signals, stopping = answers
        if refused:
            self._give_up()
        elif replaying == self.ranks.world:
            loss = self._replay(self.graphs[key], tensors)
            self.eager.verdict = Verdict(self.eager.local, bool(signals), bool(stopping))
            return loss
        elif ready == self.ranks.world and wishes:
            self._capture(window, key)  # the others hear of it before the next such step
        return self._eagerly(window)

    def _give_up(self) -> None:
        self._is_over = True
        reason = self.report.reason or ELSEWHERE
        self.drop()
        super()._refuse(reason)

    def _refuse(self, reason: str) -> None:
        """Not at once: a rank that ended here would leave the others waiting."""
        self.report.reason, self.report.captured = reason, False
        self._samples.clear()

    def _check(self, window: Sequence[Batch]) -> None:
        super()._check(window)
        if self.eager.verdict is not None and self.eager.verdict.uneven:
            raise Refusal("a parameter has a gradient on some ranks only")
