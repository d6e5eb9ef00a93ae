"""A batch size that runs, in the place of Accelerate's own search for one: with the same optimisation batch."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from brim.arguments.known import known_arguments
from brim.data.randomness.generators import generator_states, restore_generators
from brim.engine.oom.out_of_memory import is_out_of_memory, release_memory
from brim.engine.state.host_copy import host_copy
from brim.errors import CannotFit, ConfigError, a_type, first_line
from brim.record import Journal
from brim.sizes import check_whole

Result = TypeVar("Result")


@known_arguments
def find_executable_batch_size(
    function: Callable[..., Result] | None = None,
    starting_batch_size: int = 128,
    *,
    largest: int | None = None,
    restores: Sequence[Any] = (),
) -> Any:
    """Call ``function(batch_size, accumulation, ...)``; where memory runs out, again with a smaller batch size.

    ``batch_size * accumulation`` is ``starting_batch_size`` in every try, so that an optimizer step is over the same
    samples whatever fits: Accelerate's own decorator takes other batches, and trains something else. Gradients are to
    be added up over ``accumulation`` batches: ``Accelerator(gradient_accumulation_steps=accumulation)`` does that.

    Args:
        function: trains; may be left out to use this as a decorator with arguments.
        starting_batch_size: the samples of an optimizer step.
        largest: the batch size that is forecast to fit (:func:`brim.largest_batch`): larger ones are not tried.
        restores: models, optimizers, schedulers and whatever else has ``state_dict`` and ``load_state_dict``: a try
            that fails, for whatever reason, leaves them and the random generators as they were.

    Returns:
        The function, to be called without its first two arguments; it returns what ``function`` does.

    Raises:
        CannotFit: where memory runs out with one sample at a time.

    >>> @find_executable_batch_size(starting_batch_size=12)
    ... def train(batch_size, accumulation):
    ...     if batch_size > 4:
    ...         raise torch.OutOfMemoryError("CUDA out of memory")
    ...     return batch_size, accumulation
    >>> train()
    (4, 3)
    """
    _check_arguments(starting_batch_size, largest, restores)
    if function is None:
        return functools.partial(
            find_executable_batch_size, starting_batch_size=starting_batch_size, largest=largest, restores=restores
        )
    chosen = function
    _check_takes_both(chosen)

    @functools.wraps(chosen)
    def run(*arguments: Any, **named: Any) -> Result:
        if arguments and _takes_no_more(chosen, arguments, named):
            raise ConfigError(
                f"{chosen.__name__} is called without batch_size and accumulation, which find_executable_batch_size "
                f"hands over: {chosen.__name__}({', '.join(['...'] * (len(arguments) - 1))})"
            )

        def attempt(size: int) -> Result:
            return chosen(size, starting_batch_size // size, *arguments, **named)

        return _largest_that_runs(attempt, starting_batch_size, largest, KeptState(restores))

    return run


def _largest_that_runs(attempt: Callable[[int], Result], whole: int, largest: int | None, kept: "KeptState") -> Result:
    """The result with the first of the batch sizes that does not run out of memory."""
    sizes = batch_sizes(whole, largest)
    for size, smaller in zip(sizes, [*sizes[1:], None], strict=True):
        try:
            return attempt(size)
        except BaseException as error:
            if not is_out_of_memory(error):
                kept.restore()
                raise
            said = first_line(error, 120)
        release_memory(_device())  # out here: the error would hold the tensors of the try
        kept.restore()
        if smaller is not None:
            Journal().warn(
                f"memory ran out with batches of {size} ({said}); going on with {whole // smaller} accumulated batches "
                f"of {smaller}, the same {whole} samples a step",
                "memory",
            )
    raise CannotFit(
        f"memory ran out with {sizes[-1]} samples at a time; use a smaller model, a lower precision or gradient "
        "checkpointing"
    )


def _check_arguments(starting_batch_size: int, largest: int | None, restores: Sequence[Any]) -> None:
    check_whole("starting_batch_size", starting_batch_size)
    if largest is not None:
        check_whole("largest", largest)
    if not isinstance(restores, Sequence):
        raise ConfigError(f"restores= is {a_type(restores)}; hand over a list: restores=[model, optimizer]")
    for part in restores:
        if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
            raise ConfigError(f"restores= holds {a_type(part)}, which has no state_dict and load_state_dict")


def _takes_no_more(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether there is no room for these arguments behind the two that are handed over."""
    try:
        inspect.signature(function).bind(1, 1, *arguments, **named)
    except TypeError:
        return True
    except ValueError:  # of a builtin: it is found out by the call
        return False
    return False


def _check_takes_both(function: Callable[..., Any]) -> None:
    try:
        takes = inspect.signature(function)
    except (TypeError, ValueError):  # of a builtin: it is found out by the call
        return
    try:
        takes.bind_partial(1, 1)
    except TypeError:
        raise ConfigError(
            f"{getattr(function, '__name__', 'the function')}{takes} must take (batch_size, accumulation) first: "
            "gradients are added up over accumulation batches, so that a step keeps its samples"
        ) from None


def batch_sizes(whole: int, largest: int | None = None) -> list[int]:
    """The sizes that divide ``whole`` evenly, from the largest on; those above ``largest`` are left out.

    >>> batch_sizes(12), batch_sizes(12, largest=5), batch_sizes(7, largest=3)
    ([12, 6, 4, 3, 2, 1], [4, 3, 2, 1], [1])
    """
    return [size for size in range(min(whole, largest or whole), 0, -1) if whole % size == 0]


class KeptState:
    """What a try may change, as it was before: states on the host, gradients, and random generators."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = [(part, host_copy(part.state_dict())) for part in parts]
        parameters = [p for part in parts if isinstance(part, nn.Module) for p in part.parameters()]
        self._gradients = [(p, None if p.grad is None else p.grad.clone()) for p in parameters]
        self._device = _device()
        self._generators = generator_states(self._device)

    def restore(self) -> None:
        for part, state in self._parts:
            part.load_state_dict(host_copy(state))  # an optimizer keeps the tensors it is handed
        for parameter, gradient in self._gradients:
            parameter.grad = None if gradient is None else gradient.clone()
        restore_generators(self._generators, self._device)


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_initialized() else "cpu")  # type: ignore[no-untyped-call]
