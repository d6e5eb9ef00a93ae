"""Where users hook their own code into a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor

from brim.arguments.attributes import UnknownAttribute
from brim.engine.state.host_copy import without_numpy
from brim.errors import ConfigError, a_type

if TYPE_CHECKING:
    from brim.engine.trainer import Trainer


LIST_METHODS = ("append", "extend", "insert", "add", "remove", "pop", "clear", "add_callback")


class Callback:
    """Code of your own at certain moments of a run: override what you need; what you leave alone costs nothing.

    ``loss`` in :meth:`on_step_end` is still on the device: reading it with ``.item()`` at every step stops the device's
    queue at every step. ``trainer.stop("why")`` ends the run after the current step.

    The checkpoint of an epoch is written after :meth:`on_epoch_end`, so what that changes is in it. The best weights
    are those that were evaluated. :meth:`on_fit_end` comes last, when the model has the weights that ``fit`` leaves:
    what it changes is in the run folder too, for ``brim.load``; a run that is resumed goes on from before it. What a
    callback counts by itself it gives to checkpoints with ``state_dict`` and ``load_state_dict``. When each hook runs
    and what it may change is in docs/callbacks.md.

    >>> class StopEarly(Callback):
    ...     def on_step_end(self, trainer, step, loss):
    ...         if step == 100:
    ...             trainer.stop("100 steps are enough")
    """

    def on_fit_start(self, trainer: Trainer) -> None:
        """Before the first step; after :meth:`on_load`, where a run is resumed."""

    def on_epoch_start(self, trainer: Trainer, epoch: int) -> None:
        """Before each epoch, counted from 1; not where a run is resumed within one."""

    def on_step_start(self, trainer: Trainer, step: int) -> None:
        """Before each optimizer step, counted from 1, when its batches are read."""

    def on_step_end(self, trainer: Trainer, step: int, loss: Tensor) -> None:
        """After each optimizer step, counted from 1, with its mean loss."""

    def on_evaluate_start(self, trainer: Trainer) -> None:
        """Before each evaluation."""

    def on_evaluate(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        """After each evaluation, with what it found."""

    def on_epoch_end(self, trainer: Trainer, epoch: int) -> None:
        """After each epoch, counted from 1, before its checkpoint."""

    def on_save(self, trainer: Trainer, step: int) -> None:
        """Before each checkpoint, of so many steps: what it changes is in it."""

    def on_load(self, trainer: Trainer, step: int) -> None:
        """After a checkpoint of so many steps was loaded: a run is resumed, or goes back (``on_nan="rewind"``)."""

    def on_exception(self, trainer: Trainer, error: BaseException) -> None:
        """When the run ends with an error, Ctrl-C included; what this raises is told, and the error goes on."""

    def on_fit_end(self, trainer: Trainer) -> None:
        """At the end, when the model has the weights that ``fit`` leaves."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of this callback: numbers, strings, tensors, and lists and dicts of these."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become what :meth:`state_dict` gave, where a run is resumed; on all ranks the state of the first."""


class Callbacks:
    """All callbacks of a run, asked only for the events they handle."""

    def __init__(self, callbacks: tuple[Callback, ...]) -> None:
        self.callbacks = callbacks
        for one in callbacks:
            if _handles(one, "state_dict") and not _handles(one, "load_state_dict"):
                raise ConfigError(
                    f"{type(one).__name__} has a state_dict and no load_state_dict, so a resumed run would lose what "
                    "it kept; write both"
                )
        self.before_step = [one.on_step_start for one in callbacks if _handles(one, "on_step_start")]
        self.on_step = [callback.on_step_end for callback in callbacks if _handles(callback, "on_step_end")]

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name in LIST_METHODS:
                raise UnknownAttribute(f"there is no callbacks.{name}: hand callbacks over as Trainer(callbacks=[...])")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def watches_steps(self) -> bool:
        """Whether one of them is called at every step."""
        return bool(self.before_step or self.on_step)

    @property
    def kept_objects(self) -> list[Any]:
        """Parts of the model whose Python state is in the ``state_dict`` of a callback, which lists them so."""
        return [one for callback in self.callbacks for one in getattr(callback, "kept_objects", ())]

    def handles(self, *events: str) -> bool:
        """Whether one of them does something at one of these events."""
        return any(_handles(callback, event) for callback in self.callbacks for event in events)

    def call(self, event: str, *arguments: object) -> None:
        for callback in self.callbacks:
            if _handles(callback, event):
                getattr(callback, event)(*arguments)

    @contextmanager
    def reporting_errors(self, trainer: Any, warn: Callable[[str], Any]) -> Iterator[None]:
        """Call ``on_exception`` for an error that ends the run; an error in a hook is a warning, and hides nothing."""
        try:
            yield
        except BaseException as error:
            for callback in self.callbacks:
                if _handles(callback, "on_exception"):
                    try:
                        callback.on_exception(trainer, error)
                    except Exception as other:
                        warn(f"{type(callback).__name__}.on_exception failed itself: {type(other).__name__}: {other}")
            raise

    def state(self) -> dict[str, Any]:
        """What callbacks keep in a checkpoint, by class and number."""
        states = {key: without_numpy(callback.state_dict()) for key, callback in self._with_state()}
        odd = next((f"{key} returns {found}" for key, state in states.items() if (found := _not_plain(state))), None)
        if odd is not None:
            raise ConfigError(
                f"state_dict of the callback {odd}, which a checkpoint does not hold; return numbers, strings, "
                "tensors, and lists, tuples and dicts of these"
            )
        return states

    def restore(self, saved: dict[str, Any]) -> list[str]:
        """Let each have what it kept; returns what to tell the user."""
        owners = dict(self._with_state())
        for key, state in saved.items():
            if key in owners:
                owners[key].load_state_dict(state)
        lost = [key for key in saved if key not in owners]
        return [f"the checkpoint holds the state of the callback {key}, which this run does not have" for key in lost]

    def _with_state(self) -> Iterator[tuple[str, Callback]]:
        counts: dict[str, int] = {}
        for callback in self.callbacks:
            name = type(callback).__name__
            counts[name] = counts.get(name, 0) + 1
            if _handles(callback, "state_dict"):
                yield name if counts[name] == 1 else f"{name} {counts[name]}", callback


def _handles(callback: Callback, event: str) -> bool:
    method = getattr(callback, event, None)  # of the class, or of this object alone
    return method is not None and getattr(method, "__func__", method) is not getattr(Callback, event)


def _not_plain(value: Any) -> str:
    """What of a state cannot be read again without running code: a kind of object; empty where everything can."""
    if isinstance(value, dict):
        return next(filter(None, (_not_plain(one) for pair in value.items() for one in pair)), "")
    if type(value) in (list, tuple):
        return next(filter(None, map(_not_plain, value)), "")
    plain = isinstance(value, Tensor) or value is None or type(value) in (str, bytes, int, float, bool)
    return "" if plain else f"{a_type(value)}"
