"""A model of transformers whose last layer waits for its loss, for as long as it is trained."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from brim.errors import ConfigError, a_type
from brim.logits.linear_cross_entropy import is_looked_through
from brim.logits.pending_logits import PendingLogits, Told
from brim.replaced import replaced

WHOLE, CHUNKED, AUTO = CHOICES = ("whole", "chunked", "auto")


@contextmanager
def chunked_logits(
    model: nn.Module, logits: str, told: Told = lambda sentence: None, waits: bool = False
) -> Iterator[None]:
    """Within, the last layer of the model and its loss are computed in chunks, where ``logits`` asks for it.

    The layer's ``forward`` is replaced on the instance and bound to it: copies of the model compute with their own
    weights, and afterwards as the plain layer does. Nothing else of the model changes; where gradients are not wanted,
    as in evaluations, nothing at all.

    Args:
        model: a model of transformers, perhaps with adapters.
        logits: ``"chunked"``, ``"auto"`` (where it can be), or ``"whole"``.
        told: hears once if all logits were needed.
        waits: with ``logits="whole"``, whether :func:`begin_chunks` may begin with it later.

    Raises:
        ConfigError: where the model has no such layer, and ``logits="chunked"``.
    """
    check_chunked(model, logits)
    is_later = logits == WHOLE and waits
    if (logits == WHOLE and not waits) or why_whole(model) is not None:
        yield
        return
    head, forward = _head_of(model), _Forward(told, is_later)
    counting = register_optimizer_step_pre_hook(forward.note_optimizer_step)
    try:
        with replaced((head, "forward", MethodType(forward, head))):
            yield
    finally:
        counting.remove()
        forward.is_over = True


def waits_for_chunks(model: nn.Module) -> bool:
    """Whether the last layer could be computed in chunks from now on."""
    forward = _forward_of(model)
    return forward is not None and forward.is_waiting


def begin_chunks(model: nn.Module) -> None:
    """Compute the last layer in chunks from now on, where it waits for that."""
    if (forward := _forward_of(model)) is not None:
        forward.is_waiting = False


def _forward_of(model: nn.Module) -> "_Forward | None":
    own = getattr(vars(_head_of(model) or model).get("forward"), "__func__", None)
    return own if isinstance(own, _Forward) and not own.is_over else None


def check_chunked(model: nn.Module, logits: str) -> None:
    """Refuse a model whose last layer cannot be computed in chunks, where that is asked for."""
    if logits not in CHOICES:
        raise ConfigError(f"logits={logits!r} is not known; use {', '.join(repr(choice) for choice in CHOICES)}")
    if logits == CHUNKED and (reason := why_whole(model)) is not None:
        raise ConfigError(f"logits='chunked' cannot be used here: {reason}")


def why_whole(model: nn.Module) -> str | None:
    """A sentence where the last layer of a model cannot be computed in chunks; None where it can.

    >>> why_whole(nn.Linear(2, 1))
    'Linear is no model of transformers with a last layer over words; use brim.linear_cross_entropy in its loss'
    """
    name, head = type(model).__name__, _head_of(model)
    if head is None:
        why = f"{name} is no model of transformers with a last layer over words"
        return f"{why}; use brim.linear_cross_entropy in its loss"
    if type(head) is not nn.Linear:
        return f"the last layer of {name} is {a_type(head)}, which is not followed; leave logits='whole'"
    if _is_replaced(head):
        return f"forward of the last layer of {name} was replaced already; leave logits='whole'"
    return None


def _head_of(model: nn.Module) -> Any:
    """The layer that gives logits, as transformers' models name it; None where there is none."""
    find = getattr(model, "get_output_embeddings", None)
    try:
        return find() if callable(find) else None
    except (AttributeError, NotImplementedError):  # models whose base class promises one
        return None


def _has_backward_hooks(head: nn.Linear) -> bool:
    """Whether somebody waits for the gradients of the layer's outputs."""
    return bool(
        head._backward_hooks or head._backward_pre_hooks or torch.nn.modules.module._global_backward_hooks
        or torch.nn.modules.module._global_backward_pre_hooks
    )  # fmt: skip


def _is_replaced(head: nn.Linear) -> bool:
    """Whether a layer computes something else than its class does; a copy that was made in a run does no more."""
    own = getattr(vars(head).get("forward"), "__func__", None)
    is_plain = isinstance(own, _Forward) and (own.is_over or own.is_waiting)
    return "forward" in vars(head) and own is not nn.Linear.forward and not is_plain


class _Forward:
    """``forward`` of a linear layer, to be bound to it. One for all copies of a model, so that it tells once."""

    __name__ = "forward"  # by which a pickled method is found again

    def __init__(self, told: Told, is_waiting: bool = False) -> None:
        self._told: Told | None = told
        self.is_waiting = is_waiting
        self.is_over = False  # copies of the model that outlive the run compute as they are
        self._optimizer_steps = 0

    def __call__(self, head: nn.Linear, input: Tensor) -> Tensor:
        parts = (input, head.weight, head.bias)
        is_trained = torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in parts)
        if self.is_over or self.is_waiting or not is_trained or is_looked_through():
            return F.linear(*parts)
        if _has_backward_hooks(head):
            self._tell("a backward hook of the last layer")
            return F.linear(*parts)
        return PendingLogits.of(*parts, self._tell, lambda: self._optimizer_steps)

    def note_optimizer_step(self, *_: Any) -> None:
        """The weights are others from now on."""
        self._optimizer_steps += 1

    def _tell(self, wanted_by: str) -> None:
        told, self._told = self._told, None
        if told is not None:
            told(
                f"logits='chunked' saves nothing: {wanted_by} uses all logits, so they are computed as without it; let "
                "the loss be the model's own, or F.cross_entropy of its logits"
            )

    def __deepcopy__(self, memo: Any) -> "_Forward":
        return self
