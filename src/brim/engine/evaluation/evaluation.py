"""Evaluating: no gradients, the device asked for numbers once at the end."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from brim.data import Batch, DevicePrefetcher, Loader, as_feed, batch_length, move_data_to_device, slice_batch
from brim.data.randomness.order import rank_bounds
from brim.engine.calling.criterion import is_torchs_criterion
from brim.engine.captured import CapturedLoss
from brim.engine.components.loss import Loss, LossOf, as_sum, counted_in
from brim.engine.components.loss_count import SAMPLES, Kind, kind_of, possible_rules
from brim.engine.components.precision import Precision
from brim.engine.distributed.ranks import Ranks
from brim.engine.distributed.same_batches import check_same_data, same_on_all_ranks
from brim.engine.evaluation.evaluation_slices import EvaluationSlices, FittingSize, evaluate_in_parts, loss_in_parts
from brim.engine.evaluation.metrics.metric_set import MetricSet
from brim.engine.evaluation.metrics.named import NAMED
from brim.engine.evaluation.metrics.seen_batch import SeenBatch
from brim.engine.evaluation.monitor import nearest_metric
from brim.engine.mistakes.evaluators import as_numbers, check_evaluator
from brim.engine.numbers.gather_scope import Alone, gathering
from brim.engine.numbers.observed_pass import ObservedPass, observe
from brim.engine.numbers.pass_notes import PassNotes
from brim.engine.oom.kept_window import lent
from brim.engine.splitting.loss_verdict import LossVerdict
from brim.engine.splitting.splitting import Splitting
from brim.errors import ConfigError, DataError


@runtime_checkable
class Evaluator(Protocol):
    """Data that knows how to evaluate a model on itself, and which of its metrics decides what is best."""

    monitor: str
    higher_is_better: bool

    def evaluate(self, model: nn.Module) -> dict[str, float]: ...


class MeanLoss:
    """The evaluator of data that has none of its own: the mean loss over every sample."""

    monitor = "loss"
    higher_is_better = False

    def __init__(
        self,
        data: Any,
        compute: LossOf,
        precision: Precision,
        *,
        sliceable: bool | None = None,
        ranks: Ranks | None = None,
        metrics: MetricSet | None = None,
        notes: PassNotes | None = None,
        tell: Callable[[str], Any] = lambda sentence: None,
    ) -> None:
        self.metrics = metrics or MetricSet()
        self.notes = notes or PassNotes()
        self.feed = as_feed(data)
        self.ranks = ranks or Ranks()
        self.compute = compute
        self.loss_fn = getattr(counted_in(compute), "loss_fn", None)  # which tells what outputs mean
        self.precision = precision
        self.prefetcher = DevicePrefetcher(precision.device, floats=precision.weights_dtype)
        self.splitting = Splitting(counted_in(compute), None, precision, sliceable)
        self._has_judged = self._must_be_whole = False  # together with the other ranks, who know the same
        counted = counted_in(compute)
        encoding = None
        if counted is not None and counted.two_pass is not None:
            encoding = Splitting(counted, counted.model, precision, sliceable, is_of_encode=True)
        self.slices = EvaluationSlices(precision, encoding or self.splitting, sliceable, tell=tell)
        self.captured: CapturedLoss | None = None
        self._has_compared = False  # what ranks read

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Exact whatever the sizes of the batches are, and however many ranks share them."""
        if self.captured is not None:
            self.captured.begin()
        with self.metrics.evaluation(self.precision.device):
            with self.ranks.fits_on_all("evaluate its share"):
                self._judge_together()
                losses = self._losses(model)
            return self.results(losses)

    def _losses(self, model: nn.Module) -> list[Loss]:
        """Of this rank's share, part by part; the metrics take each of them in."""
        losses: list[Loss] = []
        for batch in self.prefetcher(self._batches()):
            if not batch_length(batch):
                continue
            if self.ranks.is_alone:
                self._judge(batch)
            losses += self.slices(batch, partial(self.part, model))
        return losses

    def _judge(self, batch: Batch) -> None:
        """What the loss is a mean over, for the mean over all batches: asked where it may be more than samples."""
        loss = self.splitting.loss
        if loss is not None and not loss.is_judged(batch):
            is_plain = is_torchs_criterion(loss.loss_fn) or (self.ranks.is_alone and len(possible_rules(batch)) == 1)
            if not is_plain:
                self.splitting.judge([batch])
            if not loss.is_judged(batch):
                loss.count_by(SAMPLES, kind_of(batch))

    def _judge_together(self) -> None:
        """The first rank asks, by the first batch, for all: their parts of it may not tell them the same."""
        loss = self.splitting.loss
        if self.ranks.is_alone or loss is None or self._has_judged:
            return
        self._has_judged = True
        told: tuple[LossVerdict | None, Kind | None] = (None, None)
        if self.ranks.is_first and (first := next(iter(self.feed.in_order()), None)) is not None:
            self._judge(self.precision.cast(move_data_to_device(first, self.precision.device)))
            told = self.splitting.verdict, kind_of(first)
        verdict, kind = self.ranks.broadcast_object(told)
        if verdict is None:
            loss.count_by(SAMPLES)
        else:
            self.splitting.settle(verdict, kind)
            self._must_be_whole = not verdict.gives_count and not self.splitting.sliceable

    def results(self, losses: list[Loss]) -> dict[str, float]:
        """The mean loss and all metrics, over all parts of all ranks."""
        mean = self._mean(losses)
        return {"loss": mean, **self.metrics.results(self.ranks, mean)}

    def _mean(self, losses: list[Loss]) -> float:
        """Over all parts of all ranks; the device is asked once."""
        totals, count = [loss.total for loss in losses], float(sum(loss.count for loss in losses))
        total = torch.stack(totals).cpu().double().sum() if totals else torch.zeros((), dtype=torch.float64)
        sums = torch.stack([total, torch.tensor(count, dtype=torch.float64), torch.tensor(float(len(totals)))])
        if not self.ranks.is_alone:  # not every device has numbers this long
            sums = self.ranks.all_reduce(sums.to(self.precision.device)).cpu()
        total, count, parts = sums.tolist()
        if not parts:
            raise DataError("the evaluation data is empty, so its mean loss is unknown")
        return float(total / count) if count else math.nan

    def observed(self, model: nn.Module, batch: Batch) -> ObservedPass[Loss]:
        """The summed loss of one batch, with the model's outputs where metrics need them."""
        counted, compute = counted_in(self.compute), self.compute
        if self.metrics.need_outputs and counted is not None:
            compute = counted.uncompiled
        if self._is_encoded_in_parts and counted is not None and self.slices.size is not None:
            compute = partial(loss_in_parts, counted, self.slices.size)
        length = batch_length(batch)
        with gathering(Alone()):  # other ranks evaluate other parts, and not as many
            return observe(
                self._whole(model), lambda: as_sum(compute(batch), length), self.notes, self.metrics.need_outputs
            )

    def part(self, model: nn.Module, batch: Batch, counts: bool = True) -> Loss:
        """The summed loss of a part of the data, which the metrics take in unless it does not count.

        A graph would not repeat what is logged: where there is anything, nothing is captured.
        """
        captured = None if self._is_encoded_in_parts else self.captured
        found = self.observed(model, lent(batch)) if captured is None else captured(lent(batch))
        if found.numbers:
            self.captured = None
        if counts:
            seen = SeenBatch(self._whole(model), self.loss_fn, found.outputs, batch, batch_length(batch))
            self.metrics.update(seen, found.numbers, found.result.count)
        return found.result

    @property
    def _is_encoded_in_parts(self) -> bool:
        """Whether samples are encoded a few at a time, and compared all at once."""
        counted = counted_in(self.compute)
        return counted is not None and counted.two_pass is not None and self.slices.size is not None

    def _whole(self, model: nn.Module) -> nn.Module:
        """The model as the user has it, also where ``model`` is a part or a wrapper of it."""
        counted = counted_in(self.compute)
        return model if counted is None or counted.model is None else counted.model

    def _batches(self) -> Iterator[Batch]:
        """This rank's share, each sample on one rank."""
        if self.ranks.is_alone:
            yield from self.feed.in_order()
            return
        for number, batch in enumerate(self.whole_batches()):
            if self._must_be_whole:  # one rank after the other takes one
                if number % self.ranks.world == self.ranks.rank:
                    yield batch
                continue
            yield slice_batch(batch, *rank_bounds(0, batch_length(batch), self.ranks.rank, self.ranks.world))

    def whole_batches(self) -> Iterator[Batch]:
        """The batches of all ranks together; the first time it is seen whether all ranks read the same."""
        batches = self.feed.in_order()
        if self.ranks.is_alone or self._has_compared:
            return batches
        self._has_compared = True
        if isinstance(self.feed, Loader) and self.feed.samples is not None:
            check_same_data(self.feed, self.ranks, "the evaluation data", self.slices.tell)
            return batches
        return same_on_all_ranks(batches, self.ranks, "the evaluation data", 1, self.slices.tell)


def as_evaluator(
    data: Any, compute: LossOf, precision: Precision, *, ranks: Ranks | None = None, **settings: Any
) -> Evaluator:
    """Data that evaluates itself, or its :class:`MeanLoss` with these ``settings``."""
    check_evaluator(data)
    if isinstance(data, Evaluator):
        if isinstance(getattr(data, "ranks", None), Ranks):  # it can take its share
            data.ranks = ranks or Ranks()  # type: ignore[attr-defined]
        return data
    return MeanLoss(data, compute, precision, ranks=ranks, **settings)


def detach_ranks(*data: Any) -> None:
    """Let evaluators compute on this rank alone again, after a run in which each rank took a share."""
    for one in data:
        if isinstance(one, Mapping):  # sets by name
            detach_ranks(*one.values())
        elif isinstance(getattr(one, "ranks", None), Ranks):
            one.ranks = Ranks()


@contextmanager
def evaluating(model: nn.Module, now: Callable[[], nn.Module] | None = None) -> Iterator[None]:
    """Eval mode without gradients; every module returns to the mode that it had. ``now``: the model in the end."""
    modes = {name: module.training for name, module in model.named_modules()}
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        for name, module in (model if now is None else now()).named_modules():
            module.training = modes.get(name, module.training)


def evaluate_model(
    evaluator: Evaluator, model: nn.Module, fitting: FittingSize | None = None, monitor: str | None = None
) -> dict[str, float]:
    """The metrics as plain numbers, the one that decides among them.

    ``fitting``: what is known to fit into memory. ``monitor``: what decides, where that is not the evaluator's own.
    """
    decides = evaluator.monitor if monitor is None else monitor
    with evaluating(model, getattr(evaluator, "model_now", None)):
        metrics = as_numbers(evaluate_in_parts(evaluator, model, fitting), f"{type(evaluator).__name__}.evaluate")
    if decides not in metrics:
        if decides == evaluator.monitor:
            raise ConfigError(f"the evaluation data decides by {decides!r}, and gave only {_listed(metrics)}")
        raise unknown_monitor(decides, metrics)
    return metrics


def unknown_monitor(monitor: str, metrics: Collection[str]) -> ConfigError:
    """The error for a metric to monitor that is not among those of the evaluation data."""
    meant = nearest_metric(monitor, metrics)
    hint = f"; add metrics={monitor!r}" if monitor in NAMED else f"; did you mean {meant!r}?" if meant else ""
    return ConfigError(f"monitor={monitor!r} is not among the metrics of the evaluation data: {_listed(metrics)}{hint}")


def _listed(metrics: Collection[str]) -> str:
    return ", ".join(metrics) or "nothing"
