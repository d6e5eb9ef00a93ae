"""Several evaluation sets by name: each is evaluated by itself, its metrics under its name."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.evaluation import Evaluator, MeanLoss
from brim.engine.evaluation.evaluation_slices import FittingSize, evaluate_in_parts
from brim.errors import ConfigError


class EvaluationSets:
    """Evaluates one set after the other; the first one's metric decides, unless another is monitored.

    >>> class Half:
    ...     monitor, higher_is_better = "score", True
    ...     def evaluate(self, model):
    ...         return {"score": 0.5}
    >>> EvaluationSets({"clean": Half(), "noisy": Half()}, Ranks()).evaluate(nn.Linear(1, 1))
    {'clean/score': 0.5, 'noisy/score': 0.5}
    """

    def __init__(self, sets: dict[str, Evaluator], ranks: Ranks) -> None:
        self.sets = sets
        self.ranks = ranks
        first = next(iter(sets))
        self.monitor = f"{first}/{sets[first].monitor}"
        self.higher_is_better = sets[first].higher_is_better
        known = (getattr(one, "model_now", None) for one in sets.values())
        self.model_now: Callable[[], nn.Module] | None = next((now for now in known if now is not None), None)
        self._fitting = {name: FittingSize() for name in sets}

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, one in self.sets.items():
            # Where a rank has no memory for a set, no rank goes on to the next: they would wait for each other.
            with self.ranks.fits_on_all(f"evaluate {name!r}"):
                metrics = evaluate_in_parts(one, model, self._fitting[name])
            found |= {f"{name}/{metric}": value for metric, value in metrics.items()}
        return found


def named_sets(data: Any) -> dict[str, Any] | None:
    """Evaluation sets by name, where that is what was handed over; a dict of columns is one set.

    >>> named_sets({"clean": [(1, 2)], "noisy": [(3, 4)]}) is not None, named_sets([(1, 2)]) is None
    (True, True)
    """
    if not isinstance(data, Mapping) or not data or isinstance(data, Evaluator):
        return None
    if any(_is_column(value) for value in data.values()):
        return None
    for name in data:
        if not isinstance(name, str) or not name or "/" in name:
            raise ConfigError(f"evaluation sets are called by a text without '/', and one is {name!r}")
    return dict(data)


def _is_column(value: Any) -> bool:
    """Whether it has one value for each sample, and so is a part of a data set: a tensor, an array, plain numbers."""
    if isinstance(value, list | tuple) and value:
        return isinstance(value[0], int | float | str)
    return isinstance(value, Tensor | str | int | float) or hasattr(value, "__array__")


def mean_losses(evaluator: Evaluator | None) -> list[MeanLoss]:
    """The evaluators in it that are brim's own."""
    parts = evaluator.sets.values() if isinstance(evaluator, EvaluationSets) else [evaluator]
    return [one for one in parts if isinstance(one, MeanLoss)]


def drop_graphs(evaluator: Evaluator | None) -> None:
    """Give back the graphs of an evaluator that is done.

    They would wait for Python's garbage collector otherwise, and hold memory of the GPU; collected in a worker process
    that was forked meanwhile, they would end it.
    """
    for one in mean_losses(evaluator):
        if one.captured is not None:
            one.captured.drop()
