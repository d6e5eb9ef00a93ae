import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
import torchmetrics.functional as exact
from torch import nn

from brim.engine.evaluation.metrics.named import NAMED, named_metric
from brim.engine.evaluation.metrics.seen_batch import SeenBatch
from brim.engine.evaluation.metrics.summed_metric import added, sums_on_host
from brim.errors import ConfigError

CLASSES = 7


def value(name, batches, loss_fn=None, model=None):
    """The metric over batches of (outputs, target)."""
    metric, sums = named_metric(name), None
    for outputs, target in batches:
        batch = target if isinstance(target, dict) else (None, target)
        sums = added(sums, metric.part(SeenBatch(model or nn.Identity(), loss_fn, outputs, batch, len(outputs))))
    return metric.finish(sums_on_host([sums])[0])


def ragged(outputs, target):
    return list(zip(outputs.split([5, 1, 11, 3]), target.split([5, 1, 11, 3]), strict=True))


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


SCORES = torch.randn(20, CLASSES, generator=torch.Generator().manual_seed(1))
TARGET = torch.randint(0, CLASSES - 2, (20,), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accuracy", lambda s, t: exact.accuracy(s, t, "multiclass", num_classes=CLASSES)),
        ("acc", lambda s, t: exact.accuracy(s, t, "multiclass", num_classes=CLASSES)),
        ("top5_accuracy", lambda s, t: (s.topk(5).indices == t[:, None]).any(1).double().mean()),
        ("f1", lambda s, t: exact.f1_score(s, t, "multiclass", num_classes=CLASSES, average="macro")),
        ("precision", lambda s, t: exact.precision(s, t, "multiclass", num_classes=CLASSES, average="macro")),
        ("recall", lambda s, t: exact.recall(s, t, "multiclass", num_classes=CLASSES, average="macro")),
    ],
)  # fmt: skip
def test_over_ragged_batches_it_is_what_torchmetrics_says_of_all_samples(name, expected):
    assert value(name, ragged(SCORES, TARGET)) == pytest.approx(float(expected(SCORES, TARGET)), rel=1e-6)


@pytest.mark.parametrize("name", ["mse", "rmse", "mae", "r2"])
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_numbers_are_compared_one_by_one(name, shape):
    outputs, target = torch.randn(20, *shape), torch.randn(20, *shape)
    functions = {
        "mse": exact.mean_squared_error, "mae": exact.mean_absolute_error, "r2": exact.r2_score,
        "rmse": lambda o, t: exact.mean_squared_error(o, t, squared=False),
    }  # fmt: skip
    squeezed = (outputs.squeeze(-1), target.squeeze(-1)) if shape == (1,) else (outputs, target)
    assert value(name, ragged(outputs, target)) == pytest.approx(float(functions[name](*squeezed)), rel=1e-5)


def test_a_column_is_compared_with_a_row_of_numbers():
    outputs, target = torch.randn(20, 1), torch.randn(20)
    assert value("mse", ragged(outputs, target)) == pytest.approx(float((outputs[:, 0] - target).square().mean()))


@pytest.mark.parametrize(
    ("loss_fn", "outputs"), [(nn.BCEWithLogitsLoss(), SCORES[:, :1]), (nn.BCELoss(), SCORES[:, 0].sigmoid())]
)
def test_one_score_a_target_is_read_as_the_loss_reads_it(loss_fn, outputs):
    target = (SCORES[:, 1] > 0).float()
    target[:2] = 0.5  # as smoothed labels are: not above the middle, so not class 1
    expected = (SCORES[:, 0] > 0) == (target > 0.5)
    assert value("accuracy", ragged(outputs, target), loss_fn) == pytest.approx(float(expected.float().mean()))
    f1 = exact.f1_score(SCORES[:, 0].sigmoid(), (target > 0.5).long(), "binary")
    assert value("f1", ragged(outputs, target), loss_fn) == pytest.approx(float(f1))


def test_one_score_a_target_that_no_loss_explains_is_refused():
    with pytest.raises(ConfigError, match="whether it is a logit or a probability"):
        value("accuracy", [(SCORES[:, 0], TARGET.float())])


def test_probabilities_as_targets_of_cross_entropy_are_classes():
    target = torch.randn(20, CLASSES).softmax(1)
    expected = (SCORES.argmax(1) == target.argmax(1)).float().mean()
    assert value("accuracy", ragged(SCORES, target), nn.CrossEntropyLoss()) == pytest.approx(float(expected))


@pytest.mark.parametrize("ignored", [-100, 3])
def test_ignored_targets_do_not_count(ignored):
    target = TARGET.clone()
    target[::3] = ignored
    counts = target != ignored
    loss_fn = nn.CrossEntropyLoss(ignore_index=ignored)
    expected = (SCORES.argmax(1) == target)[counts].float().mean()
    assert value("accuracy", ragged(SCORES, target), loss_fn) == pytest.approx(float(expected))
    f1 = exact.f1_score(SCORES, target, "multiclass", num_classes=CLASSES, average="macro", ignore_index=ignored)
    assert value("f1", ragged(SCORES, target), loss_fn) == pytest.approx(float(f1))


def test_where_nothing_counts_there_is_no_number():
    assert math.isnan(value("accuracy", [(SCORES, torch.full((20,), -100))]))


@pytest.mark.parametrize("length", [4, CLASSES])
def test_classes_are_where_the_loss_has_them(length):
    """In the second dimension for torch's losses, in the last of a transformers model, also where both would fit."""
    scores, target = torch.randn(20, CLASSES, length), torch.randint(0, CLASSES, (20, length))
    expected = float((scores.argmax(1) == target).float().mean())
    for loss_fn in (nn.CrossEntropyLoss(), partial(F.cross_entropy, label_smoothing=0.1)):
        assert value("accuracy", [(scores, target)], loss_fn) == pytest.approx(expected)
    named = {"logits": scores.movedim(1, -1)}
    assert value("accuracy", [(named, {"labels": target})]) == pytest.approx(expected)


class Config:
    is_encoder_decoder = False


class TinyLMHeadModel(nn.Identity):
    config = Config()


class TinyForTokenClassification(nn.Identity):
    config, loss_type = Config(), "ForTokenClassification"


class TinyForCausalLM(nn.Identity):
    config, loss_type = Config(), "ForCausalLM"


@pytest.mark.parametrize("model", [TinyLMHeadModel(), TinyForCausalLM(), TinyForTokenClassification()], ids=type)
def test_a_causal_model_predicts_the_next_token(model):
    scores, labels = torch.randn(6, 5, CLASSES), torch.randint(0, CLASSES, (6, 5))
    labels[2, 3:] = -100
    ahead = 0 if "Token" in type(model).__name__ else 1
    hits, told = scores.argmax(-1)[:, : 5 - ahead] == labels[:, ahead:], labels[:, ahead:] != -100
    found = value("accuracy", [({"logits": scores}, {"labels": labels})], model=model)
    assert found == pytest.approx(float(hits[told].float().mean()))


def test_half_precision_and_large_counts_are_summed_exactly():
    outputs = torch.full((70_000,), 2.0, dtype=torch.bfloat16)
    assert value("mse", [(outputs, torch.zeros(70_000))]) == 4.0


@pytest.mark.parametrize("name", NAMED)
def test_shapes_that_do_not_fit_are_refused_in_a_sentence(name):
    with pytest.raises(ConfigError, match="pass a function instead"):
        value(name, [(torch.randn(4, 3, 2), torch.randn(4, 5))])
    with pytest.raises(ConfigError, match="without logits"):
        value(name, [([torch.randn(4)], torch.randn(4))])
    with pytest.raises(ConfigError, match="which part of a batch"):
        named_metric(name).part(SeenBatch(nn.Identity(), None, torch.randn(4), torch.randn(4), 4))


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        named_metric("acuracy")
    with pytest.raises(ConfigError, match=r"use accuracy, .*perplexity"):
        named_metric("beauty")
