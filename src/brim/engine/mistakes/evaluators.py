"""Data that is meant to evaluate itself, and does not quite."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from brim.errors import ConfigError, a_type

FIELDS = {"monitor": "monitor = 'accuracy'", "higher_is_better": "higher_is_better = True"}


def check_evaluator(data: Any) -> None:
    """Refuse an object with ``evaluate`` that is a class, or lacks what says which metric decides.

    >>> check_evaluator([(1, 2)])
    """
    if not callable(getattr(data, "evaluate", None)):
        return
    if isinstance(data, type):
        raise ConfigError(f"the evaluation data is the class {data.__name__}; hand over an object: {data.__name__}()")
    missing = [example for name, example in FIELDS.items() if not hasattr(data, name)]
    if missing:
        raise ConfigError(
            f"{type(data).__name__} has evaluate(model) and not all that says which metric decides: give it "
            f"{' and '.join(missing)}"
        )
    if not isinstance(data.higher_is_better, bool | np.bool_):  # "min" would be taken for True
        raise ConfigError(
            f"{type(data).__name__}.higher_is_better is {data.higher_is_better!r}; it must be True or False"
        )
    try:
        inspect.signature(data.evaluate).bind(None)
    except TypeError as error:
        raise ConfigError(
            f"{type(data).__name__}.evaluate is called with the model alone ({error}); write def evaluate(self, "
            "model), and keep the data in the object"
        ) from error
    except ValueError:  # native code has no signature
        return


def as_numbers(metrics: Any, source: str) -> dict[str, float]:
    """Metrics as plain numbers by name; ``source`` is what gave them.

    >>> as_numbers({"accuracy": 1}, "Own.evaluate")
    {'accuracy': 1.0}
    """
    if not isinstance(metrics, Mapping):
        raise ConfigError(
            f"{source} returned {_shown(metrics)}; it must return a dict of numbers by name, such as "
            "{'accuracy': 0.9}"
        )
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[str(name)] = float(value)
        except (TypeError, ValueError, RuntimeError):
            raise ConfigError(
                f"{source} returned {_shown(value)} as {name!r}; a metric is one number: take its mean, or "
                "return each under a name of its own"
            ) from None
    return numbers


def _shown(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{a_type(value)}"
