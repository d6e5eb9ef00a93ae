"""Caches of keys and values, which models of transformers fill in training too, though nobody reads them there.

A block that writes into one is told its own number, and every number is other code: GPT-2 would be compiled once for
each of its layers.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import CodeType
from typing import Any

from torch import nn

from brim.engine.sandbox.names_read import names_read
from brim.replaced import replaced

SWITCH = "use_cache"
READ_BY = frozenset(("past_key_values", "past_key_value", SWITCH))


def caching_configs(model: nn.Module, loss_fn: Any) -> list[Any]:
    """The configurations of a model that switch caches on; none where the loss may read what is cached."""
    if READ_BY & names_read(_codes_of(loss_fn, getattr(type(model), "calculate_loss", None))):
        return []
    configs = [vars(module).get("config") for module in model.modules()]
    return list({id(one): one for one in configs if getattr(one, SWITCH, None) is True}.values())


@contextmanager
def without_caches(configs: Sequence[Any]) -> Iterator[None]:
    """Switched off; afterwards as they were."""
    with ExitStack() as stack:
        for config in configs:
            if getattr(config, SWITCH, None) is True:
                stack.enter_context(replaced((config, SWITCH, False)))
        yield


def _codes_of(*functions: Any) -> list[CodeType]:
    called = [one if hasattr(one, "__code__") else vars(type(one)).get("__call__") for one in functions]
    found = [getattr(one, "__code__", None) for one in called]
    return [code for code in found if code is not None]
