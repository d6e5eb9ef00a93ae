"""One pass of a loss, and what comes of it beside the loss: the model is not run a second time for its outputs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import nn

from brim.engine.numbers.pass_notes import Number, PassNotes
from brim.errors import ConfigError

Result = TypeVar("Result")


@dataclass(frozen=True)
class ObservedPass(Generic[Result]):
    """What a pass gave; ``outputs`` are what the loss says they are, else what its one call of the model returned."""

    result: Result
    outputs: Any
    numbers: list[tuple[str, Number]]


def observe(
    model: nn.Module, compute: Callable[[], Result], notes: PassNotes, needs_outputs: bool
) -> ObservedPass[Result]:
    """Compute, and see what the model returned and what was logged."""
    calls: list[Any] = []
    with notes.taking() as taken, _hooked(model, calls) if needs_outputs else nullcontext():
        result = compute()
    if taken.has_outputs or not needs_outputs:
        return ObservedPass(result, taken.outputs, taken.numbers)
    if len(calls) != 1:
        how = "does not call the model" if not calls else f"calls the model {len(calls)} times"
        raise ConfigError(
            f"metrics need the model's outputs, and the loss {how}: let it return {{'loss': loss, 'outputs': outputs}}"
        )
    return ObservedPass(result, calls[0], taken.numbers)


@contextmanager
def _hooked(model: nn.Module, calls: list[Any]) -> Iterator[None]:
    """Within, what calls of the model return is noted."""
    hook = model.register_forward_hook(lambda module, arguments, output: calls.append(output))
    try:
        yield
    finally:
        hook.remove()
