"""The moment at which a trial of gradients begins, and to which it returns again and again."""

from collections.abc import Callable
from typing import Any

from torch import nn

from brim.engine.captured.proof.step_state import StepState, copy_all
from brim.engine.components.two_pass import criterion_in
from brim.engine.oom.snapshot import Snapshot
from brim.engine.step.eager_step import EagerStep


class TrialStart:
    """Weights, buffers, generators and gradients as they are now; ``rewind`` puts back what is kept in Python."""

    def __init__(self, model: nn.Module, loss_fn: Any, eager: EagerStep, rewind: Callable[[], None]) -> None:
        self._rewind = rewind
        self._snapshot = Snapshot(model, eager.precision, loss_fn)
        self._snapshot.take()
        state = StepState(model, eager.optimizer, eager.precision, loss_fn)
        # Nothing but the optimizer should move them; a forward pass that clips them does.
        self._trained = [state.named[name] for name in state.trained]
        self._copies = list(state.copies_of(state.trained).values())
        self._versions = [tensor._version for tensor in self._trained]
        # Gradients that no optimizer clears add up over the steps, in the same memory.
        stepped = {id(parameter) for parameter in eager.parameters}
        modules = [part for part in (model, criterion_in(loss_fn)) if part is not None]
        others = dict.fromkeys(p for module in modules for p in module.parameters() if id(p) not in stepped)
        self._gradients = [(parameter, parameter.grad) for parameter in others if parameter.requires_grad]

    def return_to(self) -> None:
        """Everything as it was, but for gradients, of which there are none."""
        self._snapshot.find_moves()  # also what moves without being counted as a change
        self._rewind()
        self._snapshot.restore()
        if [tensor._version for tensor in self._trained] != self._versions:
            copy_all(self._trained, self._copies)
            self._versions = [tensor._version for tensor in self._trained]
        for parameter, _ in self._gradients:
            parameter.grad = None

    def put_back(self) -> None:
        """Everything as it was, those gradients included that no optimizer clears."""
        self.return_to()
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
