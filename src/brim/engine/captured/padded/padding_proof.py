"""The proof that more padding changes nothing: gradients of batches as they come, beside those of the padded ones.

Dropout is switched off in both, since it draws a number for each position, and other numbers for more of them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from brim.data import Batch
from brim.engine.captured.graph import StepGraph
from brim.engine.captured.inputs import own_copy
from brim.engine.captured.proof.comparison import (
    compare_buffers,
    compare_gradients,
    compare_losses,
    loss_sensitivity,
)
from brim.engine.captured.proof.rounding import Rounding
from brim.engine.captured.proof.step_state import StepState
from brim.engine.captured.report import Refusal
from brim.engine.components.loss import Loss
from brim.engine.numbers.pass_notes import Number
from brim.engine.splitting.without_dropout import without_dropout

PADDED = "a padded batch"
LOGGED = 2.0**-6  # numbers that a loss logs may be of any precision


def prove_padding(
    graph: StepGraph,
    model: nn.Module,
    windows: Sequence[Sequence[Batch]],
    padded: Sequence[Sequence[Batch]],
    state: StepState,
    rounding: Rounding,
) -> None:
    """Refuse padding that gives anything else than the batches themselves; the state is as before."""
    here = state.copy()
    before = {name: here.copies[name] for name in state.others}
    for window, longer in zip(windows, padded, strict=True):
        found = []
        for one in (window, longer):
            with without_dropout(model):
                loss = float(graph.eager_gradients(own_copy(one)))
            parameters = [p for p in graph.eager.parameters if p.grad is not None]
            gradients = {state.names[id(p)]: p.grad.clone() for p in parameters if p.grad is not None}
            logged = {number.name: _value(number.value) for number in graph.eager.numbers}
            found.append((loss, gradients, state.copies_of(state.others), logged))
            here.restore()
            graph.eager.precision.forget_unscaling()
        (loss, gradients, others, logged), (other_loss, other_gradients, other_others, other_logged) = found
        compare_gradients(gradients, other_gradients, rounding, PADDED)
        compare_losses(loss, other_loss, loss_sensitivity(state.named, gradients), rounding, PADDED)
        compare_buffers(before, others, other_others, rounding, PADDED)
        _compare_logged(logged, other_logged)


def _compare_logged(logged: dict[str, float], other: dict[str, float]) -> None:
    for name in logged:
        one, two = torch.tensor(logged[name]), torch.tensor(other.get(name, torch.nan))
        if not torch.isclose(one, two, rtol=LOGGED, atol=LOGGED, equal_nan=True):
            raise Refusal(f"{PADDED} logs another {name!r} ({float(two):g} instead of {float(one):g})")


def _value(number: Number) -> float:
    value = number.mean if isinstance(number, Loss) else number
    return float(value.mean() if isinstance(value, Tensor) else value)
