"""Evaluation has a size of its own: running out of memory in it splits its batches, and leaves training alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from brim.data import Batch, batch_length, slice_batch
from brim.data.randomness.generators import generator_states, restore_generators
from brim.data.randomness.order import even_bounds
from brim.engine.components.loss import CountedLoss, Loss, loss_in
from brim.engine.components.precision import Precision
from brim.engine.components.two_pass import check_rows, joined, loss_of_outputs
from brim.engine.numbers.summed_loss import counted
from brim.engine.oom.halved_size import halved_size
from brim.engine.oom.kept_window import KeptWindow, lent
from brim.engine.oom.out_of_memory import is_out_of_memory, release_memory, shortage_of
from brim.engine.splitting.same_rows import rows_differ
from brim.engine.splitting.splitting import Splitting
from brim.errors import CannotFit

Result = TypeVar("Result")


class EvaluationSlices:
    """Computes something for a batch, in micro-batches that are halved when memory runs out, and stay so.

    ``splitting`` says of a loss whether micro-batches of it mean the same; of anything else (a prediction) the rows are
    compared, before it is first split. A loss in two passes is handed its batches whole, and encodes them in
    micro-batches of :attr:`size`.
    """

    def __init__(
        self,
        precision: Precision,
        splitting: Splitting | None = None,
        sliceable: bool | None = None,
        roots: Sequence[Any] = (),
        tell: Callable[[str], Any] = lambda sentence: None,
    ) -> None:
        self.roots = roots  # what of the user's is called
        self.precision = precision
        self.splitting = splitting
        self.sliceable = sliceable
        self.kept = KeptWindow()
        self.size: int | None = None
        self.tell = tell

    def __call__(self, batch: Batch, compute: Callable[[Batch], Result]) -> list[Result]:
        results: list[Result] = []
        self.kept.keep([batch])
        done, length = 0, batch_length(batch)
        while done < length:
            stop = length if self.size is None or self._is_whole else min(length, done + self.size)
            part = batch if stop - done == length else slice_batch(batch, done, stop)
            result = self._attempt(part, compute)
            if result is not None:
                results += result
                done = stop
        return results

    @property
    def _is_whole(self) -> bool:
        return self.splitting is not None and self.splitting.is_of_encode

    def _attempt(self, part: Batch, compute: Callable[[Batch], Result]) -> list[Result] | None:
        """The result for a part; or None, and a smaller size, where memory ran out."""
        try:
            with self.precision.autocast():
                return [compute(lent(part))]
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            stage = "prediction" if self.splitting is None else "evaluation"
            told = shortage_of(error, stage, None, None).sentence()
        release_memory(self.precision.device)
        if not self.kept.restore():
            raise CannotFit(f"{told}; the model had changed its batch in place by then, so it cannot be computed again")
        length = batch_length(part)
        if self._is_whole and self.size is not None:
            length = min(length, self.size)
        if not (smaller := halved_size(length)):
            raise CannotFit(f"{told}; a single sample is too much, so there is nothing to split")
        self._check(part, compute, told)
        self.size = smaller
        self.tell(f"{told}; going on in micro-batches of {self.size}, training as before")
        return None

    def _check(self, part: Batch, compute: Callable[[Batch], Result], told: str) -> None:
        """Refuse to split what would be something else in micro-batches."""
        if self.sliceable is None:
            self.sliceable = self._may_slice(part, compute)
        if self.sliceable is False:
            why = "its rows depend on each other" if self.splitting is None else self.splitting.why_whole()
            raise CannotFit(f"{told}; {why}: give the evaluation data a smaller batch_size")

    def _may_slice(self, part: Batch, compute: Callable[[Batch], Result]) -> bool:
        if self.splitting is not None:
            may = self.splitting.judge([part]).gives_count
            if not may and self.splitting.is_last_resort:
                self.tell("whether the model mixes the samples of a batch could not be told, for lack of memory")
            return may or self.splitting.is_last_resort
        with self.precision.autocast():
            return not rows_differ(compute, part, *self.roots)


class Evaluates(Protocol):
    def evaluate(self, model: nn.Module) -> dict[str, float]: ...


@dataclass
class FittingSize:
    """The largest ``batch_size`` of an evaluator that is not known to be too large; None where none has failed."""

    most: int | None = None


def evaluate_in_parts(evaluator: Evaluates, model: nn.Module, fitting: FittingSize | None = None) -> dict[str, float]:
    """The evaluator's metrics; one that has a ``batch_size`` gets a smaller one where memory runs out.

    Its own is put back in the end: the evaluator is the user's. ``fitting`` remembers what fitted for the next time.
    """
    fitting = fitting or FittingSize()
    own: Any = getattr(evaluator, "batch_size", None)
    is_size = isinstance(own, int) and not isinstance(own, bool)
    try:
        if is_size and fitting.most is not None and fitting.most < own:
            evaluator.batch_size = fitting.most  # type: ignore[attr-defined]
        return _evaluate_smaller(evaluator, model, fitting)
    finally:
        if is_size and getattr(evaluator, "batch_size", own) != own:
            evaluator.batch_size = own  # type: ignore[attr-defined]


def _evaluate_smaller(evaluator: Evaluates, model: nn.Module, fitting: FittingSize) -> dict[str, float]:
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    while True:
        drawn = generator_states(device)
        try:
            return evaluator.evaluate(model)
        except CannotFit:
            raise
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            told = shortage_of(error, "evaluation", model, None).sentence()
        release_memory(device)
        restore_generators(drawn, device)
        if not _halve(evaluator, fitting):
            if (give_up := getattr(evaluator, "give_up", None)) is not None:
                give_up()  # other ranks wait for its share
            raise CannotFit(f"{told}; {type(evaluator).__name__} has no batch_size that could be made smaller")


def _halve(evaluator: Evaluates, fitting: FittingSize) -> bool:
    """Take half of the evaluator's ``batch_size``; False where it has none, or none that can be set."""
    size: Any = getattr(evaluator, "batch_size", None)
    if not isinstance(size, int) or not (smaller := halved_size(size)):
        return False
    try:
        evaluator.batch_size = fitting.most = smaller  # type: ignore[attr-defined]
    except AttributeError:  # a property
        return False
    return True


def loss_in_parts(loss: CountedLoss, size: int, batch: Batch) -> Tensor | Loss:
    """What ``loss(batch)`` gives, of at most ``size`` samples encoded at once."""
    two_pass = loss.two_pass
    assert two_pass is not None
    count = loss.count_of(batch)
    parts = []
    for start, stop in even_bounds(batch_length(batch), size):
        parts.append(two_pass.encode(loss.model, slice_batch(batch, start, stop)))
        check_rows(parts[-1], stop - start)
    found = loss_in(loss_of_outputs(two_pass.loss, loss.model, joined(parts)), loss.notes)
    return found if count is None else counted(found, count)
