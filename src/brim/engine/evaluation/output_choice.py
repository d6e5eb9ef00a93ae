"""What of a model's output is kept as its prediction."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from brim.arguments.choices import shorten
from brim.data import Batch
from brim.engine.mistakes.described import described
from brim.errors import ConfigError

OutputChoice = str | int | Callable[[Any, Batch], Any] | None


def check_output_choice(output: Any) -> None:
    """Refuse what names no part of an output, before anything is computed.

    >>> check_output_choice("logits")
    """
    if output is None or (isinstance(output, str | int) and not isinstance(output, bool)):
        return
    if not callable(output):
        raise ConfigError(
            f"output={shorten(output)} names no part of an output; use a key or attribute ('logits'), a number in a "
            "tuple, or a function of (outputs, batch)"
        )
    try:
        inspect.signature(output).bind(None, None)
    except TypeError:
        raise ConfigError("output= is called as function(outputs, batch), and takes other arguments") from None
    except ValueError:  # native code has no signature
        return


def chosen_output(outputs: Any, batch: Batch, output: OutputChoice) -> Any:
    """What was asked for; by default all, and of what transformers' models return the logits.

    >>> chosen_output({"a": 1, "b": 2}, None, "b")
    2
    """
    if output is None:
        return _by_default(outputs)
    if callable(output):
        return output(outputs, batch)
    if isinstance(output, str):
        return _by_name(outputs, output)
    if isinstance(outputs, Tensor):
        raise ConfigError(f"output={output} is a place in a tuple, and the model returns a tensor; leave output out")
    try:
        return outputs[output]
    except (TypeError, IndexError, KeyError):
        raise ConfigError(f"output={output} is not in what the model returns: {described(outputs)}") from None


def _by_default(outputs: Any) -> Any:
    if isinstance(outputs, Tensor | tuple | list) or not isinstance(outputs, Mapping):
        return outputs
    logits = getattr(outputs, "logits", None)
    if isinstance(logits, Tensor):  # of a class such as transformers' ModelOutput; a plain dict has no attributes
        return logits
    return {key: value for key, value in outputs.items() if key != "past_key_values"}  # which is nobody's prediction


def _by_name(outputs: Any, name: str) -> Any:
    if isinstance(outputs, Mapping) and name in outputs:
        return outputs[name]
    found = None if isinstance(outputs, Tensor) else getattr(outputs, name, None)
    if found is None or callable(found):
        raise ConfigError(f"output={name!r} is not in what the model returns: {described(outputs)}")
    return found
