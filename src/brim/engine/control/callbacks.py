"""Where users hook their own code into a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from brim.engine.trainer import Trainer


class Callback:
    """Code of your own at certain moments of a run: override what you need; what you leave alone costs nothing.

    ``loss`` in :meth:`on_step_end` is still on the device: reading it with ``.item()`` at every step stops the device's
    queue at every step. ``trainer.stop("why")`` ends the run after the current step.

    The checkpoint of an epoch is written after :meth:`on_epoch_end`, so what that changes is in it. The best weights
    are those that were evaluated. :meth:`on_fit_end` comes last, when the model has the weights that ``fit`` leaves:
    what it changes is in the run folder too, for ``brim.load``; a run that is resumed goes on from before it.

    >>> class StopEarly(Callback):
    ...     def on_step_end(self, trainer, step, loss):
    ...         if step == 100:
    ...             trainer.stop("100 steps are enough")
    """

    def on_fit_start(self, trainer: Trainer) -> None:
        """Before the first step."""

    def on_step_end(self, trainer: Trainer, step: int, loss: Tensor) -> None:
        """After each optimizer step, counted from 1, with its mean loss."""

    def on_evaluate(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        """After each evaluation, with what it found."""

    def on_epoch_end(self, trainer: Trainer, epoch: int) -> None:
        """After each epoch, counted from 1, before its checkpoint."""

    def on_fit_end(self, trainer: Trainer) -> None:
        """At the end, when the model has the weights that ``fit`` leaves."""


class Callbacks:
    """All callbacks of a run, asked only for the events they handle."""

    def __init__(self, callbacks: tuple[Callback, ...]) -> None:
        self.callbacks = callbacks
        self.on_step = [callback.on_step_end for callback in callbacks if _handles(callback, "on_step_end")]

    def handles(self, *events: str) -> bool:
        """Whether one of them does something at one of these events."""
        return any(_handles(callback, event) for callback in self.callbacks for event in events)

    def call(self, event: str, *arguments: object) -> None:
        for callback in self.callbacks:
            if _handles(callback, event):
                getattr(callback, event)(*arguments)


def _handles(callback: Callback, event: str) -> bool:
    method = getattr(type(callback), event, None)
    return method is not None and method is not getattr(Callback, event)
