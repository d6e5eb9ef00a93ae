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
