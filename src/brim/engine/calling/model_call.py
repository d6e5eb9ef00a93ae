"""How a model is called with inputs that are several: as one object, spread over its arguments, or by their names."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from brim.uncompiled import module_within


@dataclass(frozen=True)
class ForwardArguments:
    """What ``forward`` takes: how many arguments it must have by position, and at most; and by name."""

    required: tuple[str, ...]
    named: frozenset[str]
    takes_any_name: bool


def call_model(model: nn.Module, inputs: Any) -> Any:
    """``model(inputs)``; inputs that ``forward`` could not take as one object are spread over its arguments.

    A tuple is spread where ``forward`` cannot be called with one argument, a dict where each of its keys is an argument
    of ``forward``'s.

    >>> call_model(nn.Bilinear(2, 3, 1), (Tensor(4, 2), Tensor(4, 3))).shape
    torch.Size([4, 1])
    """
    if isinstance(inputs, Tensor):  # most inputs: spared the rest
        return model(inputs)
    if isinstance(inputs, Mapping) and takes_by_name(model, inputs):
        return model(**inputs)
    if is_spread(model, inputs):
        return model(*inputs)
    return model(inputs)


def is_spread(model: nn.Module, inputs: Any) -> bool:
    """Whether these inputs are one argument each: ``forward`` needs several, and gets as many."""
    if type(inputs) not in (tuple, list) or isinstance(inputs, PackedSequence):
        return False
    return 2 <= len(arguments_of(model).required) <= len(inputs)


def takes_by_name(model: nn.Module, inputs: Mapping[str, Any]) -> bool:
    """Whether all of a dict's keys are arguments of the model's, and all that it needs are among them."""
    taken, keys = arguments_of(model), set(inputs)
    if not keys or not set(taken.required) <= keys:
        return False
    return keys <= taken.named or (taken.takes_any_name and (bool(keys & taken.named) or hasattr(model, "config")))


def named_inputs(model: nn.Module, batch: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of a batch with more than inputs, what the model takes by name; None where it needs something else."""
    taken = arguments_of(model)
    if takes_by_name(model, batch):
        return dict(batch)
    chosen = {key: value for key, value in batch.items() if key in taken.named}
    return chosen if chosen and set(taken.required) <= set(chosen) else None


def arguments_of(model: nn.Module) -> ForwardArguments:
    """What the model's ``forward`` takes; a compiled one takes what the model within takes."""
    forward = module_within(model).forward
    function, is_method = getattr(forward, "__func__", forward), hasattr(forward, "__func__")
    try:
        known = _KNOWN.setdefault(function, {})
        if is_method not in known:
            known[is_method] = _arguments(function, is_method)
        return known[is_method]
    except (TypeError, ValueError):  # native code has no signature
        return ForwardArguments((), frozenset(), takes_any_name=False)


# Reading a signature takes as long as a small layer. Weakly: a forward that was replaced may hold its whole model.
_KNOWN: WeakKeyDictionary[Any, dict[bool, ForwardArguments]] = WeakKeyDictionary()


def _arguments(function: Any, is_method: bool) -> ForwardArguments:
    found = list(inspect.signature(function).parameters.values())[1 if is_method else 0 :]
    kind = inspect.Parameter
    by_name = [one for one in found if one.kind in (kind.POSITIONAL_OR_KEYWORD, kind.KEYWORD_ONLY)]
    required = [one.name for one in found if one.default is kind.empty
                and one.kind in (kind.POSITIONAL_ONLY, kind.POSITIONAL_OR_KEYWORD, kind.KEYWORD_ONLY)]  # fmt: skip
    takes_any = any(one.kind is kind.VAR_KEYWORD for one in found)
    return ForwardArguments(tuple(required), frozenset(one.name for one in by_name), takes_any)
