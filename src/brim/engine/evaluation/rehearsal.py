"""Evaluation data that is empty or that the model cannot take, and a metric that is none: told before training.

Two samples are evaluated without a trace, where they are shaped otherwise than those that are trained on.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from brim.data import Batch, move_data_to_device, named_feed
from brim.data.batches.batch import leaves_of
from brim.engine.calling.loss_trial import two_samples
from brim.engine.evaluation.evaluation import Evaluator, MeanLoss, evaluating, unknown_monitor
from brim.engine.evaluation.evaluation_sets import named_sets
from brim.engine.mistakes.torch_errors import explained_errors
from brim.engine.oom.out_of_memory import is_out_of_memory
from brim.engine.sandbox.trial_call import StepsOptimizer, WritesFiles, trial_call
from brim.errors import DataError, reason


def refuse_unfit(name: str, data: Any, train_data: Any, evaluator: Evaluator | None, model: nn.Module) -> None:
    """Refuse ``data``, by its argument's name, where its samples cannot be evaluated and those of training can."""
    if not isinstance(evaluator, MeanLoss):
        return
    batch, training = two_samples(data), two_samples(train_data)
    if batch is None or training is None or _form(batch) == _form(training):
        return
    trouble = _why_not_evaluated(evaluator, model, batch)
    if (
        trouble is None or _why_not_evaluated(evaluator, model, training) is not None
    ):  # which the first step says in its place
        return
    raise DataError(f"{name}: {_in_words(batch)} in a sample, and {_in_words(training)} in train_data: {trouble}")


def refuse_unknown_monitor(
    monitor: str, known: Iterable[str], data: Any, evaluator: Evaluator | None, model: nn.Module
) -> None:
    """Refuse a metric to monitor that neither the metrics nor the loss of an evaluation has."""
    if monitor in known or not isinstance(evaluator, MeanLoss) or evaluator.metrics.objects:
        return  # objects of torchmetrics say what they compute when they compute it
    if (batch := two_samples(data)) is None:
        return
    try:
        logged = _evaluated(evaluator, model, batch)
    except Exception:
        return
    if monitor not in logged:
        raise unknown_monitor(monitor, [*known, *logged])


def _why_not_evaluated(evaluator: MeanLoss, model: nn.Module, batch: Batch) -> str | None:
    """Why two samples cannot be evaluated; None where they can, or cannot be tried."""
    try:
        explained_errors(_evaluated)(evaluator, model, batch)
    except (WritesFiles, StepsOptimizer, MemoryError):
        return None
    except Exception as error:
        if is_out_of_memory(error):  # an evaluation splits its batches
            return None
        return reason(error)
    return None


def _evaluated(evaluator: MeanLoss, model: nn.Module, batch: Batch) -> list[str]:
    """Evaluate a batch without a trace; returns what the loss logs beside itself."""
    device = evaluator.precision.device
    batch = evaluator.precision.cast(move_data_to_device(batch, device))
    with trial_call(model, evaluator.loss_fn, device=device, may_step=False), evaluating(model):
        return [name for name, _ in evaluator.observed(model, batch).numbers]


def _form(batch: Batch) -> list[Any]:
    """What samples are made of; the names of a dict among it."""
    leaves = [(leaf.shape[1:], leaf.dtype) if isinstance(leaf, Tensor) else type(leaf) for leaf in leaves_of(batch)]
    return [list(batch) if isinstance(batch, Mapping) else type(batch), *leaves]


def _in_words(batch: Batch) -> str:
    """The shapes in a sample.

    >>> import torch
    >>> _in_words((torch.zeros(2, 4), torch.zeros(2)))
    'shapes (4,) and ()'
    """
    shapes = [str(tuple(leaf.shape[1:])) for leaf in leaves_of(batch) if isinstance(leaf, Tensor)]
    return f"shapes {' and '.join(shapes)}" if len(shapes) > 1 else f"shape {''.join(shapes)}"


def refuse_empty(**data: Any) -> None:
    """Refuse each of ``data``, by its argument's name, that is known to hold no batch.

    >>> refuse_empty(test_data=None)
    """
    for name, one in data.items():
        if one is None or hasattr(one, "evaluate"):  # which is checked where it is asked
            continue
        if (sets := named_sets(one)) is not None:
            refuse_empty(**{f"{name}[{key!r}]": value for key, value in sets.items()})
        else:
            named_feed(one, name)
