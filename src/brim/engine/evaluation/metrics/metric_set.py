"""The metrics of an evaluation: what the user asked for, taken in batch by batch."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from brim.engine.components.settings import shorten
from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.metrics.named import PERPLEXITY, named_metric
from brim.engine.evaluation.metrics.seen_batch import SeenBatch
from brim.engine.evaluation.metrics.summed_metric import (
    SummedMetric,
    accumulation_dtype,
    added,
    ratio,
    sums_on_host,
    total_and_count,
)
from brim.engine.evaluation.metrics.torchmetrics_object import TorchmetricsObject, is_torchmetrics
from brim.engine.evaluation.metrics.user_function import function_metric
from brim.engine.numbers.pass_notes import Number, weighted
from brim.errors import ConfigError, a_type

LOSS = "loss"


@dataclass(eq=False)
class MetricSet:
    """All metrics of an evaluation. Every batch, or part of one, is taken in whole or not at all."""

    summed: list[SummedMetric] = field(default_factory=list)
    objects: list[TorchmetricsObject] = field(default_factory=list)
    perplexity: list[str] = field(default_factory=list)  # its names, where it is asked for
    tell: Callable[[str], None] = lambda sentence: None
    _sums: list[Tensor | None] = field(default_factory=list)
    _logged: dict[str, Tensor] = field(default_factory=dict)  # total and count of what the loss logs
    _device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def need_outputs(self) -> bool:
        return bool(self.summed or self.objects)

    @property
    def directions(self) -> dict[str, bool | None]:
        """The names that are known before the first evaluation, and whether higher is better."""
        known: dict[str, bool | None] = {metric.name: metric.higher_is_better for metric in self.summed}
        for found in self.objects:
            known |= found.higher_is_better
        return known | dict.fromkeys(self.perplexity, False)

    @contextmanager
    def evaluation(self, device: torch.device) -> Iterator[None]:
        """Within, batches are taken in; nothing is kept on the device while training goes on."""
        self.start(device)
        try:
            yield
        finally:
            self._sums, self._logged = [], {}
            for one in self.objects:
                one.end()

    def start(self, device: torch.device) -> None:
        """Forget what was taken in: an evaluation begins, or begins anew."""
        self._device, self._sums, self._logged = device, [None] * len(self.summed), {}
        for number, found in enumerate(self.objects):
            found.start(device)
            found.share(self.objects[:number])

    def update(self, seen: SeenBatch, numbers: list[tuple[str, Number]], count: Tensor | float) -> None:
        """Take in a part of the data. Where that fails nothing of it is taken in, so that it can be tried again.

        ``numbers`` are what its loss logged, ``count`` is what the loss was summed over.
        """
        with ExitStack() as stack:
            for found in self.objects:
                stack.enter_context(found.unchanged_on_error())
            parts = [metric.part(seen) for metric in self.summed]
            sums = [added(*pair) for pair in zip(self._sums, parts, strict=True)]
            for found in self.objects:
                found.update(seen)
            logged = dict(self._logged)
            for name, number in numbers:
                part = total_and_count(*weighted(number, count, self._device))
                logged[name] = added(logged.get(name), part)
        self._sums, self._logged = list(sums), logged

    def results(self, ranks: Ranks, loss: float) -> dict[str, float]:
        """Over all parts of all ranks; the device is asked once for sums, and once for each object of torchmetrics."""
        logged = list(dict.fromkeys(name for names in ranks.all_gather_object(list(self._logged)) for name in names))
        totals = self._totals(ranks, [*self._sums, *(self._logged.get(name) for name in logged)])
        found = {name: ratio(sums) for name, sums in zip(logged, totals[len(self.summed) :], strict=True)}
        found |= {metric.name: metric.finish(sums) for metric, sums in zip(self.summed, totals, strict=False)}
        for one in self.objects:  # before any has exchanged what it holds
            one.copy_from_source()
        for one in self.objects:
            found |= one.results(ranks)
        return found | dict.fromkeys(self.perplexity, exponential(loss))

    def _totals(self, ranks: Ranks, vectors: Sequence[Tensor | None]) -> list[list[float]]:
        """Sums over all ranks, as numbers."""
        device = self._device
        empty = torch.zeros(0, dtype=accumulation_dtype(device), device=device)
        held = [empty if sums is None else sums.to(device, accumulation_dtype(device)) for sums in vectors]
        if not ranks.is_alone and held:
            lengths = ranks.all_gather_object([len(sums) for sums in held])
            most = [max(of_ranks) for of_ranks in zip(*lengths, strict=True)]
            padded = [torch.nn.functional.pad(sums, (0, n - len(sums))) for sums, n in zip(held, most, strict=True)]
            held = list(torch.split(ranks.all_reduce(torch.cat(padded)), most))
        return sums_on_host(held)


def exponential(loss: float) -> float:
    """``exp``, with infinity for what no float can hold."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def make_metrics(given: Any, tell: Callable[[str], None] = lambda sentence: None) -> MetricSet:
    """The metrics that a user asks for: a name, a function, an object of torchmetrics, or several of them.

    Args:
        given: ``"accuracy"``, ``["accuracy", "f1"]``, ``{"name": function}``, ``{"name": (metric, function)}`` with an
            object of torchmetrics and what makes its arguments of (outputs, batch), or None.
        tell: hears what the user should know.

    >>> list(make_metrics(["accuracy", "perplexity"]).directions)
    ['accuracy', 'perplexity']
    """
    found = MetricSet(tell=tell)
    for name, one in _listed(given):
        _add(found, name, one)
    of_objects = [name for one in found.objects for name in one.higher_is_better]
    names = [*(metric.name for metric in found.summed), *of_objects, *found.perplexity]
    if LOSS in names:
        raise ConfigError("metrics= names one of them 'loss', which is the mean loss itself; give it another name")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"metrics= has two of the name {twice!r}; hand them over as a dict, each by its own name")
    return found


def _listed(given: Any) -> list[tuple[str | None, Any]]:
    """What was given, one by one, with the names that the user chose."""
    if given is None:
        return []
    if is_torchmetrics(given) or isinstance(given, str) or callable(given):
        return [(None, given)]
    if isinstance(given, Mapping):
        return [(str(name), one) for name, one in given.items()]
    if isinstance(given, Sequence):
        return [(None, one) for one in given]
    if hasattr(given, "shape"):  # the targets, as an argument of their own
        raise ConfigError(f"metrics= is {a_type(given)}; data is one argument: trainer.evaluate((x, y))")
    raise ConfigError(f"metrics={shorten(given)} must be names, functions or torchmetrics objects, or a dict of them")


def _add(found: MetricSet, name: str | None, one: Any) -> None:
    if isinstance(one, str) and one == PERPLEXITY:
        found.perplexity.append(name or one)
    elif isinstance(one, str):
        made = named_metric(one)
        found.summed.append(SummedMetric(name or one, made.part, made.finish, made.higher_is_better))
    elif isinstance(one, tuple) and len(one) == 2 and is_torchmetrics(one[0]) and callable(one[1]):
        found.objects.append(_object(found, name, one[0], one[1]))
    elif is_torchmetrics(one):
        found.objects.append(_object(found, name, one))
    elif isinstance(one, type):
        raise ConfigError(f"metrics= holds the class {one.__name__}; hand over an object of it: {one.__name__}(...)")
    elif callable(one):
        found.summed.append(function_metric(name or str(getattr(one, "__name__", "metric")), one))
    else:
        raise ConfigError(
            f"metrics= holds {shorten(one)}; use a name such as 'accuracy', a function of (outputs, batch), or an "
            "object of torchmetrics"
        )


def _object(found: MetricSet, name: str | None, metric: Any, inputs: Any = None) -> TorchmetricsObject:
    """A collection has names of its own; a single metric is called by its class."""
    is_collection = hasattr(metric, "items") and hasattr(metric, "add_metrics")
    return TorchmetricsObject(name or ("" if is_collection else type(metric).__name__), metric, inputs, found.tell)
