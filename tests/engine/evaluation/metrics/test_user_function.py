import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchmetrics.functional
from torch import nn

from brim.engine.components.loss import Loss
from brim.engine.evaluation.metrics.seen_batch import SeenBatch
from brim.engine.evaluation.metrics.summed_metric import added, sums_on_host
from brim.engine.evaluation.metrics.user_function import function_metric
from brim.errors import ConfigError

X = torch.arange(10.0)


def value(function, sizes=(3, 1, 6)):
    metric, sums = function_metric("mine", function), None
    for part in X.split(list(sizes)):
        sums = added(sums, metric.part(SeenBatch(nn.Identity(), None, part, (part, part), len(part))))
    return metric.finish(sums_on_host([sums])[0])


@pytest.mark.parametrize(
    "function",
    [
        lambda outputs, batch: outputs,  # one for each sample
        lambda outputs, batch: outputs.mean(),  # the mean over the batch
        lambda outputs, batch: outputs.mean().item(),
        lambda outputs, batch: outputs.numpy(),
        lambda outputs, batch: np.float32(outputs.mean()),
        lambda outputs, batch: Loss(outputs.sum(), len(outputs)),
        lambda outputs, batch: Loss(batch[1].sum() * 2, torch.tensor(2 * len(outputs))),
    ],
)
def test_every_form_gives_the_mean_over_all_samples(function):
    assert value(function) == pytest.approx(4.5)


def test_truth_values_and_short_formats_are_counted_exactly():
    assert value(lambda outputs, batch: outputs > 2) == pytest.approx(0.7)
    assert value(lambda outputs, batch: outputs.bfloat16()) == pytest.approx(4.5)


def test_what_counts_by_tokens_is_weighted_by_them():
    """Samples with 0, 1, 2, ... tokens, a fifth of them hits."""
    assert value(lambda outputs, batch: Loss(outputs.sum() / 5, outputs.sum())) == pytest.approx(0.2)


@pytest.mark.parametrize("function", [lambda: 1.0, lambda a, b, c: 1.0])
def test_a_function_of_other_arguments_is_refused_before_the_run(function):
    with pytest.raises(ConfigError, match=r"must be a function of \(outputs, batch\)"):
        function_metric("mine", function)


@pytest.mark.parametrize(
    ("function", "call"),
    [
        (lambda preds, target: 1.0, "function(outputs, batch[1])"),
        (lambda out, y: 1.0, "function(outputs, batch[1])"),
        (F.mse_loss, "mse_loss(outputs, batch[1])"),
        (nn.MSELoss(), "function(outputs, batch[1])"),
        (torchmetrics.functional.mean_squared_error, "mean_squared_error(outputs, batch[1])"),
        (lambda y_true, y_pred: 1.0, "function(batch[1], outputs)"),
        (lambda labels, other: 1.0, "function(batch[1], outputs)"),
    ],
)
def test_a_function_of_a_target_is_refused_with_how_to_write_it(function, call):
    with pytest.raises(ConfigError, match=re.escape(f"{{'mine': lambda outputs, batch: {call}}}")):
        function_metric("mine", function)


@pytest.mark.parametrize("wrong", ["0.5", None, (3, 4), [3.0, 4.0, 5.0], {"a": 1.0}, 1j, True, np.str_("a")], ids=str)
def test_what_is_no_number_is_refused_with_the_forms_that_are(wrong):
    with pytest.raises(ConfigError, match=rf"'mine' gave a {type(wrong).__name__}\b.*; let it return a number"):
        value(lambda outputs, batch: wrong)


def test_a_comparison_with_a_whole_batch_is_no_number():
    with pytest.raises(ConfigError, match="gave a bool, which is what == gives for a tensor and something else"):
        value(lambda outputs, batch: outputs == batch)


def test_a_function_of_all_predictions_at_once_is_told_apart():
    with pytest.raises(ConfigError, match=r"takes one argument, and a metric is a function of \(outputs") as told:
        function_metric("compute_metrics", lambda eval_pred: {"accuracy": 1.0})
    assert "eval_data of your own with evaluate(model)" in str(told.value) and "\n" not in str(told.value)
