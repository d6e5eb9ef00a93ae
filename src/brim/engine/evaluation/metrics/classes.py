"""Predicted classes beside the true ones, from logits in the shapes of torch's and transformers' losses."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brim.engine.components.loss_count import IGNORED
from brim.engine.evaluation.metrics.seen_batch import WRITE_A_FUNCTION, SeenBatch
from brim.errors import ConfigError
from brim.uncompiled import module_within


@dataclass(frozen=True)
class ClassScores:
    """``scores`` of every class, last; ``true`` classes; where ``counts`` is False these may be anything: ignored."""

    scores: Tensor
    true: Tensor
    counts: Tensor

    @property
    def predicted(self) -> Tensor:
        return self.scores.argmax(-1)


def class_scores(seen: SeenBatch, axis: int) -> ClassScores:
    """Scores of all classes, which are in the dimension ``axis`` where there are several, beside the target.

    One score a target is that of class 1 of two.
    """
    scores, target = seen.prediction, seen.target
    if target.is_floating_point() and target.dim() == scores.dim() and _compares_distributions(seen, scores):
        target = target.argmax(1)  # probabilities of classes, as cross entropy takes them
    if scores.dim() == target.dim() + 1:
        if not (scores.shape[-1] == 1 and scores.shape[:-1] == target.shape):
            return _multiclass(seen, _classes_last(scores, target, axis), target)
        scores = scores.squeeze(-1)
    if scores.shape != target.shape and scores.numel() == target.numel():
        target = target.reshape(scores.shape)
    if scores.shape != target.shape:
        raise ConfigError(
            f"outputs of shape {tuple(scores.shape)} are no scores of classes for a target of shape "
            f"{tuple(target.shape)}; {WRITE_A_FUNCTION}"
        )
    return _binary(seen, scores, target)


def _multiclass(seen: SeenBatch, scores: Tensor, target: Tensor) -> ClassScores:
    if _is_shifted(seen, scores):
        scores, target = scores[:, :-1], target[:, 1:]
    target = target.long()
    counts = target != _ignored_index(seen.loss_fn)
    return ClassScores(scores, target, counts)


def _binary(seen: SeenBatch, scores: Tensor, target: Tensor) -> ClassScores:
    """One score a target: above which one it is class 1 depends on the loss."""
    kind = getattr(seen.loss_fn, "__name__", type(seen.loss_fn).__name__)
    middle = {
        "BCEWithLogitsLoss": 0.0, "binary_cross_entropy_with_logits": 0.0, "SoftMarginLoss": 0.0,
        "BCELoss": 0.5, "binary_cross_entropy": 0.5, "MultiLabelSoftMarginLoss": 0.0,
    }.get(kind)  # fmt: skip
    if middle is None or not scores.is_floating_point():
        raise ConfigError(
            "the model gives one number for each target: whether it is a logit or a probability only BCEWithLogitsLoss "
            f"and BCELoss tell; {WRITE_A_FUNCTION}"
        )
    scores, everywhere = scores - middle, torch.ones_like(target, dtype=torch.bool)
    return ClassScores(torch.stack([-scores, scores], -1), (target > 0.5).long(), everywhere)


def _classes_last(scores: Tensor, target: Tensor, axis: int) -> Tensor:
    """Classes are the second dimension for torch's losses, and the last one of a transformers model's logits."""
    moved = scores.movedim(axis, -1)
    if moved.shape[:-1] != target.shape:
        raise ConfigError(
            f"outputs of shape {tuple(scores.shape)} are no scores of classes for a target of shape "
            f"{tuple(target.shape)}; {WRITE_A_FUNCTION}"
        )
    return moved


def _compares_distributions(seen: SeenBatch, scores: Tensor) -> bool:
    """Whether targets are probabilities of classes: cross entropy takes them so."""
    kind = getattr(seen.loss_fn, "__name__", type(seen.loss_fn).__name__)
    return kind in ("CrossEntropyLoss", "cross_entropy") and scores.dim() > 1


def _ignored_index(loss_fn: Any) -> int:
    return int(getattr(loss_fn, "ignore_index", IGNORED))


def _is_shifted(seen: SeenBatch, scores: Tensor) -> bool:
    """Whether position t of the logits predicts label t + 1, as in causal models of transformers."""
    if isinstance(seen.outputs, Tensor) or scores.dim() != 3 or not hasattr(seen.model, "config"):
        return False
    return is_causal(seen.model)


def is_causal(model: nn.Module) -> bool:
    """Whether a transformers model shifts the labels by itself, as causal language models do; refused where unknown."""
    if getattr(model.config, "is_encoder_decoder", False):
        return False
    kind: Any = getattr(model, "loss_type", None)
    if kind is not None:
        return bool(kind == "ForCausalLM")
    inner = [module_within(model)]  # that of a compiled one, and of one with adapters of peft
    if callable(get_base := getattr(inner[0], "get_base_model", None)):
        inner.append(get_base())
    if any(word in type(one).__name__ for one in inner for word in ("LMHead", "ForCausalLM")):
        return True
    raise ConfigError(
        f"whether the logits of {type(inner[-1]).__name__} at a position are for the label there or for the next one "
        f"is not known; {WRITE_A_FUNCTION}"
    )
