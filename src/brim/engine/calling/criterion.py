"""Losses that compare an output with a target: torch's own, and functions that can be seen to be one."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from brim.data import Batch
from brim.engine.calling.loss_form import LossForm, LossFunction, form_of
from brim.engine.calling.model_call import call_model
from brim.engine.mistakes.described import described
from brim.engine.numbers.summed_loss import Loss, counted
from brim.errors import ConfigError, DataError, a_type

BY_PLACE = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss)  # they compare number with number


def is_criterion(loss_fn: LossFunction) -> bool:
    """Whether ``loss_fn`` compares an output with a target, as torch's losses do, instead of taking (model, batch)."""
    return form_of(loss_fn) is LossForm.CRITERION


def is_torchs_criterion(loss_fn: LossFunction | None) -> bool:
    """Whether it is one of torch's own losses, none of which looks from one sample to another."""
    if isinstance(loss_fn, nn.Module):
        return type(loss_fn).__module__ == "torch.nn.modules.loss" and "forward" not in vars(loss_fn)
    return loss_fn is not None and getattr(loss_fn, "__module__", "") == "torch.nn.functional"


class Criterion:
    """``criterion(model(inputs), target)``, with the count by which torch's own mean divides."""

    def __init__(self, model: nn.Module, criterion: LossFunction) -> None:
        # By identity: a user's own object may have no hash.
        known = ((F.cross_entropy, nn.CrossEntropyLoss), (F.nll_loss, nn.NLLLoss))
        criterion = next((make() for function, make in known if function is criterion), criterion)
        self.model = model
        self.criterion: Any = criterion  # the user's own object: what a callback changes on it is seen
        self._is_torchs = is_torchs_criterion(criterion)
        self._goes_by_place = type(criterion) in BY_PLACE or any(
            criterion is function for function in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss)
        )
        self._check_reduction()

    def __call__(self, batch: Batch) -> Tensor | Loss:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise ConfigError(
                "loss_fn compares an output with a target, so batches must be (inputs, target) pairs, and this one is "
                f"{described(batch)}{', where (x, y) is one tuple' if isinstance(batch, Tensor) else ''}; for other "
                "batches pass loss_fn=lambda model, batch: ..."
            )
        inputs, target = batch
        output = call_model(self.model, inputs)
        if self._is_torchs and not isinstance(output, Tensor):
            raise ConfigError(
                f"{type(self.model).__name__} returns {a_type(output)}, and loss_fn compares a tensor with "
                "the target; choose a part of it: loss_fn=lambda model, batch: ..."
            )
        if self._is_torchs and not isinstance(target, Tensor):
            held = f" of {type(target[0]).__name__}" if isinstance(target, tuple | list) and target else ""
            raise DataError(
                f"the targets are {a_type(target)}{held}, and loss_fn compares with a tensor: let the data "
                "give numbers, of classes {'cat': 0, 'dog': 1}[label]"
            )
        if type(self.criterion) is nn.CrossEntropyLoss:
            _check_classes(output, target)
        if self._sums() and not target.is_floating_point():
            self._check_reduction()
            if _rounds_sums(output):
                return counted(self.criterion(output, target), target_weight(self.criterion, target))
            # The sum, not mean times count: where every target is ignored the mean is 0 / 0, and so is its gradient.
            return Loss(self._summed(output, target), target_weight(self.criterion, target))
        if self._goes_by_place:
            _check_shapes(output, target)
        mean: Tensor = self.criterion(output, target)
        return mean

    def _sums(self) -> bool:
        """Whether it divides by the weight of the targets that count: these two do, and not what inherits from them."""
        own = self.criterion
        is_plain = type(own) in (nn.CrossEntropyLoss, nn.NLLLoss) and "forward" not in vars(own)
        return is_plain and not (own._forward_hooks or own._forward_pre_hooks)

    def _summed(self, output: Tensor, target: Tensor) -> Tensor:
        own = self.criterion
        if type(own) is nn.NLLLoss:
            return F.nll_loss(output, target, own.weight, ignore_index=own.ignore_index, reduction="sum")
        return F.cross_entropy(
            output, target, own.weight, ignore_index=own.ignore_index, reduction="sum",
            label_smoothing=own.label_smoothing,
        )  # fmt: skip

    def _check_reduction(self) -> None:
        reduction = getattr(self.criterion, "reduction", "mean")
        if reduction not in ("mean", "batchmean"):
            raise ConfigError(
                f"loss_fn has reduction={reduction!r}; use reduction='mean', or a function of (model, batch) "
                "that returns brim.Loss(total, count)"
            )


def _check_shapes(output: Any, target: Any) -> None:
    """Refuse a column beside a vector: torch would compare each of the one with every one of the other."""
    if not isinstance(output, Tensor) or not isinstance(target, Tensor) or output.dim() == target.dim():
        return
    if {output.dim(), target.dim()} == {1, 2} and output.numel() == target.numel() == len(output) == len(target) > 1:
        raise DataError(
            f"the outputs have shape {tuple(output.shape)} and the targets {tuple(target.shape)}, so the loss would "
            "compare each output with every target; hand over y.reshape(-1, 1) for a model that returns a column (a "
            "Series: y.to_frame()), or let the model return a vector: squeeze(1)"
        )


def _check_classes(output: Tensor, target: Tensor) -> None:
    """Refuse a single class, of which the loss and its gradient are always 0. A lone sample may be one of many."""
    if output.dim() > 1 and output.shape[1] == 1 and target.dim() and len(output) == len(target) > 1:
        raise DataError(
            "the model has one output, and cross entropy over a single class is 0 whatever it says: use "
            "nn.BCEWithLogitsLoss() and y.float().reshape(-1, 1) for two classes, nn.MSELoss() for numbers, or give "
            "the model an output for each class"
        )


def _rounds_sums(output: Tensor) -> bool:
    """Whether a loss of it is computed in 16 bits: then it divides by a rounded count, and so must we, to be the same.

    Autocast computes losses in 32.
    """
    return output.element_size() < 4 and not torch.is_autocast_enabled(output.device.type)


def target_weight(criterion: Any, target: Tensor) -> Tensor:
    """What CrossEntropyLoss and NLLLoss divide by: the summed class weight of the targets that are not ignored."""
    counted: Tensor = target != criterion.ignore_index
    if criterion.weight is None:
        return counted.sum()
    weights: Tensor = criterion.weight[target.where(counted, 0)] * counted
    return weights.sum(dtype=torch.float32 if weights.element_size() < 4 else None)
