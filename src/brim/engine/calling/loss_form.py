"""Which of its two forms a loss function has, told by its signature: (model, batch), or (prediction, target)."""

import enum
import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from brim.errors import ConfigError

LossFunction = Callable[..., Any]
MODELS = {"model", "net", "network", "module", "m", "mdl", "nn_model", "self_model"}
BATCHES = {"batch", "data", "samples", "sample", "examples", "minibatch", "batch_data", "xb"}
PREDICTIONS = {
    "input", "inputs", "output", "outputs", "out", "pred", "preds", "prediction", "predictions", "predicted", "y_pred",
    "ypred", "yhat", "y_hat", "logits", "logit", "scores", "score", "probs", "probabilities", "estimate", "y_predicted",
}  # fmt: skip
TARGETS = {
    "target", "targets", "label", "labels", "truth", "y", "y_true", "ytrue", "true", "gt", "ground_truth", "expected",
    "tgt", "y_target", "actual", "reference", "gold",
}  # fmt: skip
BOTH_FORMS = (
    "write loss_fn(prediction, target) for batches of (inputs, target), or loss_fn(model, batch), which calls the "
    "model itself, for any batches"
)


class LossForm(enum.Enum):
    CRITERION = "(prediction, target)"
    OF_MODEL = "(model, batch)"
    UNCLEAR = "either"


class TriedCriterion(functools.partial[Any]):
    """A function that was seen to compare an output with a target. A partial, so that whoever looks for what a loss
    holds looks into it."""


def form_of(loss_fn: Callable[..., Any]) -> LossForm:
    """The form that a loss function's arguments tell, by how they are annotated and called.

    >>> form_of(lambda y_hat, y: (y_hat - y).abs().mean()).value
    '(prediction, target)'
    >>> form_of(lambda a, b: (a - b).abs().mean()).value
    'either'
    """
    if isinstance(loss_fn, TriedCriterion):
        return LossForm.CRITERION
    if isinstance(loss_fn, nn.Module):
        _check_order(loss_fn, _parameters_of_forward(loss_fn))
        return LossForm.CRITERION
    try:
        parameters = list(inspect.signature(loss_fn).parameters.values())
    except (TypeError, ValueError):  # built-in functions have no signature
        is_torchs = getattr(loss_fn, "__module__", "").startswith("torch.")
        return LossForm.CRITERION if is_torchs else LossForm.OF_MODEL
    if parameters and parameters[0].name == "input":  # what torch's own losses call it
        return LossForm.CRITERION
    _check_number(loss_fn, parameters)
    _check_order(loss_fn, parameters)
    return _by_names(parameters)


def _by_names(parameters: list[inspect.Parameter]) -> LossForm:
    first = parameters[0] if parameters else None
    names = _names_of_two(parameters)
    is_model = names[0] in MODELS or _is_annotated(first, nn.Module)
    is_batch = names[1] in BATCHES or (names[0] == "m" and names[1] == "b")
    is_prediction = names[0] in PREDICTIONS or _is_annotated(first, Tensor)
    is_target = names[1] in TARGETS
    if (is_model or is_batch) and not (is_prediction or is_target):
        return LossForm.OF_MODEL
    if (is_prediction or is_target) and not (is_model or is_batch):
        return LossForm.CRITERION
    return LossForm.UNCLEAR


def _names_of_two(parameters: list[inspect.Parameter]) -> tuple[str, str]:
    first, second = ([one.name.lower().strip("_") for one in parameters] + ["", ""])[:2]
    return first, second


def _is_annotated(parameter: inspect.Parameter | None, kind: type) -> bool:
    """Whether an argument is said to be such; annotations may be texts."""
    said = None if parameter is None else parameter.annotation
    if isinstance(said, str):
        return said.rpartition(".")[2] == kind.__name__
    return isinstance(said, type) and issubclass(said, kind)


def _check_number(loss_fn: Callable[..., Any], parameters: list[inspect.Parameter]) -> None:
    """Refuse a function that cannot be called with two arguments."""
    try:
        inspect.Signature(parameters).bind(None, None)
    except TypeError:
        taken = ", ".join(str(parameter) for parameter in parameters)
        raise ConfigError(f"loss_fn takes ({taken}), and a loss is called with two arguments: {BOTH_FORMS}") from None


def _check_order(loss_fn: Callable[..., Any], parameters: list[inspect.Parameter]) -> None:
    """Refuse a function whose names put the target first: called with the prediction there, most losses would still
    give a number, of something else."""
    first, second = _names_of_two(parameters)
    others = TARGETS | BATCHES | MODELS
    # What stands beside a name that says nothing must be clear: some call a prediction y, and inputs go with a model.
    is_target_first = (first in TARGETS and second in PREDICTIONS) or (
        first in TARGETS - {"y"} and second not in others | {""}
    )
    is_prediction_second = second in PREDICTIONS - {"input", "inputs"} and first not in PREDICTIONS | MODELS
    if is_target_first or (is_prediction_second and not _is_annotated(parameters[0], nn.Module)):
        taken = ", ".join(str(parameter) for parameter in parameters)
        raise ConfigError(
            f"loss_fn takes ({taken}), the target first, and is called as loss_fn(prediction, target): hand over "
            "lambda prediction, target: loss_fn(target, prediction)"
        )


def _parameters_of_forward(criterion: nn.Module) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(criterion.forward).parameters.values())
    except (TypeError, ValueError):  # compiled by TorchScript, say
        return []
