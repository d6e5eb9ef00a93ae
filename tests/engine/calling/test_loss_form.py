import functools
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from brim.engine.calling.loss_form import LossForm, TriedCriterion, form_of
from brim.errors import ConfigError


def annotated(a: Tensor, b: Tensor): ...
def annotated_as_text(a: "torch.Tensor", b): ...
def annotated_model(a: nn.Module, b): ...


@dataclass
class Weighted:
    weight: float = 2.0

    def __call__(self, logits, labels): ...


@pytest.mark.parametrize(
    "loss_fn",
    [
        nn.MSELoss(), F.mse_loss, F.cross_entropy, torch.nn.functional.huber_loss, annotated, annotated_as_text,
        lambda pred, target: 0, lambda y_hat, y: 0, lambda output, truth: 0, lambda a, target: 0, lambda logits, b: 0,
        lambda predictions, labels, weight=None: 0, functools.partial(F.huber_loss, delta=2.0), Weighted(),
        lambda Output, Target: 0, TriedCriterion(lambda a, b: 0),
    ],
)  # fmt: skip
def test_a_function_of_prediction_and_target(loss_fn):
    assert form_of(loss_fn) is LossForm.CRITERION


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda model, batch: 0, lambda m, b: 0, lambda net, data: 0, lambda model, ids: 0, lambda a, batch: 0,
        annotated_model, functools.partial(lambda scale, model, batch: 0, 2.0), lambda model, batch, extra=1: 0,
    ],
)  # fmt: skip
def test_a_function_of_model_and_batch(loss_fn):
    assert form_of(loss_fn) is LossForm.OF_MODEL


@pytest.mark.parametrize(
    "loss_fn",
    [lambda a, b: 0, lambda p, t: 0, lambda x, z: 0, lambda *arguments: 0, lambda model, target: 0,
     lambda output, batch: 0],
)  # fmt: skip
def test_names_that_say_nothing_or_contradict_each_other_leave_it_open(loss_fn):
    assert form_of(loss_fn) is LossForm.UNCLEAR


@pytest.mark.parametrize("loss_fn", [lambda: 0, lambda batch: 0, lambda model, x, y: 0, lambda model, *, batch: 0])
def test_a_function_that_does_not_take_two_is_refused_with_both_forms(loss_fn):
    with pytest.raises(ConfigError, match=r"loss_fn\(prediction, target\) .* loss_fn\(model, batch\)"):
        form_of(loss_fn)


class TargetFirst(nn.Module):
    def forward(self, y_true, y_pred): ...


def annotated_target_first(labels: Tensor, logits: Tensor): ...


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda y_true, y_pred: 0, lambda y_true, y_score: 0, lambda target, output: 0, lambda y, y_hat: 0,
        lambda gt, x: 0, lambda t, prediction: 0, lambda labels, logits, weight=None: 0, TargetFirst(),
        annotated_target_first, functools.partial(lambda scale, truth, pred: 0, 2.0),
    ],
)  # fmt: skip
def test_a_function_of_target_and_prediction_is_refused_with_what_turns_them(loss_fn):
    with pytest.raises(ConfigError, match=r"lambda prediction, target: loss_fn\(target, prediction\)"):
        form_of(loss_fn)
    assert form_of(lambda prediction, target: loss_fn(target, prediction)) is LossForm.CRITERION


@pytest.mark.parametrize("loss_fn", [lambda y, t: 0, lambda f, inputs: 0, lambda x, score_of: 0])
def test_names_that_do_not_tell_the_order_leave_it_open(loss_fn):
    assert form_of(loss_fn) is LossForm.UNCLEAR
