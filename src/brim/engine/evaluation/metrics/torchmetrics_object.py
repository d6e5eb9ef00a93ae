"""Objects of torchmetrics: their own state, their own exchange between ranks."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.metrics.counts_on_device import CountsOnDevice
from brim.engine.evaluation.metrics.same_update import updates_match
from brim.engine.evaluation.metrics.seen_batch import SeenBatch
from brim.engine.evaluation.metrics.state_before import StateBefore, copy_state
from brim.engine.mistakes.torch_errors import explanation, is_lost
from brim.engine.oom.out_of_memory import is_out_of_memory
from brim.engine.sandbox.error_origin import is_raised_in_python
from brim.errors import BrimError, ConfigError, a_type

Inputs = Callable[[Any, Any], Any]
MOST_VALUES = 100  # of a metric by class that are shown one by one
# Metrics that take probabilities, or logits, which they tell apart by whether any number of an update is beyond [0, 1].
TAKE_EITHER = ("Binary", "Multilabel", "AUROC", "ROC", "AveragePrecision", "PrecisionRecallCurve", "CalibrationError")


def is_torchmetrics(value: Any) -> bool:
    """Whether it is a metric or a collection of torchmetrics; the library is not imported for that."""
    return any(cls.__module__.startswith("torchmetrics.") for cls in type(value).__mro__) and hasattr(value, "compute")


@dataclass(eq=False)
class TorchmetricsObject:
    """A ``Metric`` or ``MetricCollection``, given (outputs, target), or what ``inputs`` makes of (outputs, batch)."""

    name: str  # "" where its results have names of their own
    metric: Any
    inputs: Inputs | None = None
    tell: Callable[[str], None] = lambda sentence: None
    source: "TorchmetricsObject | None" = None  # another one, which collects the same for both
    _counts: CountsOnDevice | None = None  # where asking the device waits for it
    _replaced: list[frozenset[str]] = field(default_factory=list)  # by part, states that the last update replaced
    _validating: list[Any] = field(default_factory=list)
    _has_updated: bool = False
    _has_told: bool = False

    @property
    def higher_is_better(self) -> dict[str, bool | None]:
        """By the names of its results, as far as they are known before the first one."""
        if isinstance(self.metric, Mapping) or hasattr(self.metric, "keys"):
            named = {str(name): metric for name, metric in self.metric.items(keep_base=False, copy_state=False)}
            return {self._named(name): metric.higher_is_better for name, metric in named.items()}
        return {self.name: getattr(self.metric, "higher_is_better", None)}

    def start(self, device: torch.device) -> None:
        self.metric.to(device)
        self.metric.reset()
        self._has_updated, self.source, self._replaced = False, None, [frozenset()] * len(self._parts())
        self._counts = CountsOnDevice() if device.type == "cuda" and self._is_of_library() else None

    def end(self) -> None:
        """Let go of what was collected, and check arguments again."""
        self._validate_again()
        self.metric.reset()

    def share(self, others: Iterable["TorchmetricsObject"]) -> None:
        """Leave the collecting to the first of the others that collects the same, if there is one."""
        given_the_same = (one for one in others if one.inputs is self.inputs)
        self.source = next((one for one in given_the_same if updates_match(one.metric, self.metric)), None)

    def update(self, seen: SeenBatch) -> None:
        if self.source is not None:
            return
        arguments = (seen.prediction, seen.target) if self.inputs is None else self.inputs(seen.outputs, seen.batch)
        if not isinstance(arguments, tuple):
            raise ConfigError(
                f"the function beside the metric {self.name or type(self.metric).__name__!r} must return a tuple, "
                "what update takes: (predictions, targets)"
            )
        with self._explained(arguments), nullcontext() if self._counts is None else self._counts:
            self.metric.update(*arguments)
        if not self._has_updated:
            self._has_updated = True
            self._stop_validating()
            self._tell_of_logits(arguments[0])

    @contextmanager
    def _explained(self, arguments: tuple[Any, ...]) -> Iterator[None]:
        """What torchmetrics refuses is told with what it was given; what torch says, of memory say, stays as it is."""
        try:
            yield
        except (ValueError, TypeError, RuntimeError, IndexError) as error:
            if isinstance(error, BrimError) or is_out_of_memory(error) or is_lost(str(error)):
                raise
            if not is_raised_in_python(error) and explanation(str(error)) is None:
                raise
            given = " and ".join(_described(one) for one in arguments)
            raise self._refusal(f"cannot take {given}", error) from error

    def _refusal(self, what: str, error: Exception) -> ConfigError:
        kind, said = type(self.metric).__name__, (str(error).splitlines() or [""])[0][:200].rstrip(".")
        return ConfigError(
            f"the metric {self.name or kind!r} {what}: {said}; make {kind} for the outputs and targets that there are "
            "(its number of classes, its task), or say what it is given: "
            f"metrics={{{self.name or kind.lower()!r}: (metric, lambda outputs, batch: (..., ...))}}"
        )

    @contextmanager
    def unchanged_on_error(self) -> Iterator[None]:
        """An update that fails half way, for lack of memory say, leaves the state of before: it is made again."""
        if self.source is not None:
            yield
            return
        parts = self._parts()
        if len(parts) != len(self._replaced):  # a wrapper has made further ones
            self._replaced = [frozenset()] * len(parts)
        before = [StateBefore(*pair) for pair in zip(parts, self._replaced, strict=True)]
        try:
            yield
        except BaseException:
            for state in before:
                state.put_back()
            raise
        self._replaced = [state.replaced_by_update() for state in before]

    def copy_from_source(self) -> None:
        """Have what another one collected."""
        if self.source is not None:
            copy_state(self.source.metric, self.metric)

    def results(self, ranks: Ranks) -> dict[str, float]:
        """Its values as numbers; every rank takes part in the exchange, also one that had no sample."""
        if self._counts is not None and ranks.any_rank(not self._counts.are_complete):
            raise self._refusal("cannot count labels or predictions beyond its classes", ValueError("there are some"))
        if not ranks.is_alone:
            self._fill_empty_states(ranks)
        with nullcontext() if ranks.is_alone else ranks.collective("adding up a metric"):
            try:
                value = self.metric.compute()
            except (ValueError, TypeError, IndexError) as error:
                raise self._refusal("cannot be computed", error) from error
        found: dict[str, float] = {}
        for name, part in _flat(self.name, value):
            if part.numel() == 1:
                found[name] = float(part)
            elif part.dim() == 1 and part.numel() <= MOST_VALUES:
                found.update({f"{name}/{number}": float(one) for number, one in enumerate(part)})
            else:
                self.tell(
                    f"the metric {name!r} is a tensor of shape {tuple(part.shape)} and not a number; it is left out"
                )
        return found

    def _tell_of_logits(self, scores: Any) -> None:
        """In the first batch, where arguments are checked as well. A later one may lie within [0, 1] by chance."""
        names = [type(part).__name__ for part in self._parts()]
        takes_either = any(word in name for name in names for word in TAKE_EITHER)
        if self._has_told or not takes_either or not isinstance(scores, Tensor) or not scores.is_floating_point():
            return
        self._has_told = True
        if bool(((scores < 0) | (scores > 1)).any()):
            self.tell(
                f"{names[-1]} gets logits, which torchmetrics tells from probabilities batch by batch: its value may "
                "depend on how the data is cut; hand it probabilities: metrics={'name': (metric, lambda outputs, "
                f"batch: (outputs.{_to_probabilities(names, scores)}, batch[1]))}}"
            )

    def _named(self, name: str) -> str:
        return f"{self.name}/{name}" if self.name else name

    def _is_of_library(self) -> bool:
        return all(type(part).__module__.startswith("torchmetrics.") for part in self._parts())

    def _parts(self) -> list[Any]:
        """Every metric in it that has a state."""
        if not self.metric._modules and hasattr(self.metric, "_defaults"):
            return [self.metric]
        return [module for module in self.metric.modules() if hasattr(module, "_defaults")]

    def _stop_validating(self) -> None:
        """Checks of arguments wait for the device with every batch: the first one showed that they are right."""
        self._validating = [part for part in self._parts() if getattr(part, "validate_args", False) is True]
        for part in self._validating:
            part.validate_args = False

    def _validate_again(self) -> None:
        for part in self._validating:
            part.validate_args = True
        self._validating = []

    def _fill_empty_states(self, ranks: Ranks) -> None:
        """A rank without a sample has empty lists, and torchmetrics exchanges only what has the same type and shape."""
        parts = self._parts()
        kinds = ranks.all_gather_object([_kinds_of_lists(part) for part in parts])
        for number, part in enumerate(parts):
            told = {name: kind for of_rank in reversed(kinds) for name, kind in of_rank[number].items()}
            for name, (dtype, shape) in told.items():
                if not getattr(part, name):
                    setattr(part, name, [torch.empty((0, *shape), dtype=dtype, device=part.device)])
            part._update_count = max(1, part._update_count)  # else it warns that there was nothing


def _kinds_of_lists(part: Any) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Type and shape of what it collects in lists, where there is something."""
    lists = {name: getattr(part, name) for name in part._defaults if isinstance(getattr(part, name), list)}
    return {name: (held[0].dtype, tuple(held[0].shape[1:])) for name, held in lists.items() if held and held[0].dim()}


def _to_probabilities(names: list[str], scores: Tensor) -> str:
    """The call that makes probabilities of logits: each by itself where they are not those of one class among many."""
    is_each_by_itself = scores.dim() < 2 or scores.shape[1] == 1
    is_each_by_itself |= any(word in name for name in names for word in ("Binary", "Multilabel"))
    return "sigmoid()" if is_each_by_itself else "softmax(1)"


def _described(value: Any) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{a_type(value)}"


def _flat(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a result, which may be a dict or a tuple of them, each with its name below ``name``."""
    if isinstance(value, Mapping | tuple | list):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _flat(f"{name}/{key}" if name else str(key), inner)
    else:
        yield name, torch.as_tensor(value)
