"""The captured step where several ranks train together: all of them replay a step, or none does."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from brim.data import Batch, batch_length
from brim.engine.captured.captured_step import WARM_UP, CapturedStep
from brim.engine.captured.exchanged_gradients import ExchangedGradients
from brim.engine.captured.graph import StepGraph
from brim.engine.captured.inputs import Key, read_window
from brim.engine.captured.no_exchange import REASON, exchanges_made
from brim.engine.captured.report import Refusal
from brim.engine.step.replicated_step import ReplicatedStep
from brim.engine.step.step_result import StepResult

ELSEWHERE = "another rank cannot capture its step; its own log says why"
GATHERS = "the loss calls brim.gather, and ranks vote before each of its exchanges"
UNREACHABLE = "the hosts of the ranks do not reach each other over gloo (GLOO_SOCKET_IFNAME names the interface)"


class CapturedOverRanks:
    """Before each step the hosts ask each other whether all of them can replay it; the GPUs are not waited for.

    Each rank captures and proves by itself. Until all have, and for batches that one has no graph for, all are eager.
    Where one can never capture, nobody asks any more. ``make`` makes this rank's captured step, given what
    is other here.
    """

    def __init__(self, replicated: ReplicatedStep, make: Callable[..., CapturedStep]) -> None:
        self._replicated = replicated
        self.exchange = replicated.exchange
        self.ranks = replicated.ranks
        self._calls = 0
        self._is_over = False  # all know that it has come to nothing
        self._uneven: set[Key] = set()  # shapes of which a parameter has a gradient on some ranks only
        # Nothing that it holds leads back here: a graph must not be part of a circle of references.
        self.captured = make(
            graph_type=partial(_graph, replicated),
            gain_is_of="not counting the exchange",
            check_shape=partial(_check_even, self._uneven),
            refuses_at_once=False,  # a rank that ended there would leave the others waiting
        )

    def __call__(self, window: Sequence[Batch]) -> StepResult:
        captured = self.captured
        if self._is_over:
            return captured.eagerly(window)
        self._calls += 1
        tensors, key = read_window(window)
        is_usable = not captured.report.reason and all(batch_length(batch) for batch in window)
        has_graph = is_usable and key in captured.graphs and not captured.drop_stale_graphs()
        wants_capture = is_usable and not has_graph and captured.is_due(window, key)
        if self._calls <= WARM_UP:  # on all ranks: these steps show how long others may take, and what is exchanged
            return self._watched(window, key)
        if self._calls == WARM_UP + 1 and not self.ranks.form_host_group(self.exchange.timeout):
            captured.report.reason = UNREACHABLE
            return self._give_up(window)
        for _ in range(2):  # once more where somebody has captured in between
            refused, replaying, ready, signalled, stopping = self._ask(has_graph, has_graph or wants_capture)
            if refused:
                return self._give_up(window)
            if replaying == self.ranks.world:
                result = captured.replay(captured.graphs[key], tensors)
                return StepResult(result.loss, result.stepped, bool(signalled), bool(stopping))
            if ready < self.ranks.world:
                break
            if wants_capture:
                has_graph, wants_capture = captured.capture(window, key), False
        return self._watched(window, key)

    def _ask(self, has_graph: bool, is_ready: bool) -> list[int]:
        votes = [bool(self.captured.report.reason), has_graph, is_ready, *self.exchange.stop_requests()]
        return self.ranks.all_reduce_votes(votes, self.exchange.timeout)

    def _watched(self, window: Sequence[Batch], key: Key) -> StepResult:
        """An eager step, which shows where gradients are; and the first ones what is exchanged in them."""
        # Not in the very first: there the ranks tell each other what the loss counts.
        before = exchanges_made() if 1 < self._calls <= WARM_UP else None
        result = self.captured.eagerly(window, key if all(map(batch_length, window)) else None)
        if result.uneven_gradients:
            self._uneven.add(key)
        if self._replicated.session is not None and not self.captured.report.reason:
            self.captured.refuse(GATHERS)
        if before is None or self.captured.report.reason:
            return result
        if (exchanges_made() or 0) - before > self.exchange.collectives_per_step:
            self.captured.refuse(REASON)
        return result

    def _give_up(self, window: Sequence[Batch]) -> StepResult:
        """All at the same step; with optimizers as they were, for their kernels must be the same on all ranks."""
        self._is_over = True
        self.captured.drop()
        self.captured.put_optimizer_back()
        self.captured.give_up(self.captured.report.reason or ELSEWHERE)
        return self.captured.eagerly(window)


def _graph(replicated: ReplicatedStep, *step: Any) -> StepGraph:
    """One whose gradients are exchanged in the middle, with memory of its own for them; ``step``: as for any graph."""
    eager, window, rates, in_blocks, ring = step
    return StepGraph(eager, window, rates, in_blocks, ring, ExchangedGradients(replicated))


def _check_even(uneven: set[Key], key: Key) -> None:
    if key in uneven:
        raise Refusal("a parameter has a gradient on some ranks only")
