from collections import UserDict
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from brim.engine.components.loss import (
    CountedLoss,
    Loss,
    as_sum,
    counted_in,
    loss_of,
    predict_batch,
    returns_loss,
)
from brim.engine.components.loss_count import SAMPLES, CountRule
from brim.engine.numbers.summed_loss import counted
from brim.errors import ConfigError


class OwnLoss(nn.Linear):
    def calculate_loss(self, batch):
        return self(batch).mean()


def test_the_models_own_loss_is_used_where_none_is_given():
    model = OwnLoss(3, 1)
    batch = torch.randn(4, 3)
    assert torch.equal(loss_of(model, None)(batch), model(batch).mean())


def test_a_model_without_a_loss_is_refused_with_both_ways_out():
    with pytest.raises(ConfigError, match=r"Linear has no calculate_loss.*loss_fn=nn.MSELoss"):
        loss_of(nn.Linear(2, 1), None)


def test_any_function_of_model_and_batch_is_a_loss():
    model, batch = nn.Linear(3, 1), torch.randn(4, 3)
    assert torch.equal(loss_of(model, lambda m, b: m(b).sum())(batch), model(batch).sum())


@pytest.mark.parametrize("wrong", [torch.ones(3), 1.5, {"loss": torch.ones(())}])
def test_anything_but_a_scalar_or_a_loss_is_refused(wrong):
    with pytest.raises(ConfigError, match="must be a scalar tensor"):
        as_sum(wrong, 3)


def test_a_half_precision_mean_does_not_overflow_as_a_sum():
    assert torch.isfinite(as_sum(torch.tensor(100.0, dtype=torch.float16), 4096).total)


def test_the_mean_of_a_loss_is_total_over_count():
    assert Loss(torch.tensor(6.0), 4).mean == 1.5
    assert Loss(torch.tensor(0.0), 0).mean == 0.0


def test_predictions_come_from_predict_or_from_a_call_on_the_inputs():
    model, x = nn.Linear(3, 1), torch.randn(4, 3)
    assert torch.equal(predict_batch(model, (x, None), nn.MSELoss()), model(x))
    assert torch.equal(predict_batch(model, (x,), None), model(x))
    assert torch.equal(predict_batch(model, x, None), model(x))
    model.predict = lambda batch: "own"
    assert predict_batch(model, x, None) == "own"


def test_a_batch_of_several_parts_needs_a_predict_of_the_models_own():
    with pytest.raises(ConfigError, match=r"no predict\(batch\)"):
        predict_batch(nn.Linear(3, 1), (torch.ones(2, 3), torch.ones(2, 1)), None)


# Losses that know what they count


def test_a_mean_over_labels_comes_as_a_sum_once_its_count_is_known():
    model, x, y = nn.Linear(3, 2), torch.randn(4, 3), torch.tensor([0, -100, 1, -100])
    compute = loss_of(model, lambda m, b: F.cross_entropy(m(b[0]), b[1]))
    assert not isinstance(compute((x, y)), Loss) and not compute.is_judged((x, y))
    compute.count_by(CountRule((1,)))
    loss = compute((x, y))
    assert compute.is_judged((x, y)) and int(loss.count) == 2
    assert torch.allclose(loss.mean, F.cross_entropy(model(x), y))
    assert torch.equal(compute.plain((x, y)), F.cross_entropy(model(x), y))


def test_a_count_of_samples_leaves_the_loss_as_it_is():
    compute = loss_of(nn.Linear(3, 2), lambda m, b: m(b).mean())
    compute.count_by(SAMPLES)
    assert compute.is_judged(torch.ones(2, 3)) and not isinstance(compute(torch.ones(2, 3)), Loss)


def test_training_and_evaluation_may_count_differently():
    model = nn.Linear(3, 2)
    compute = loss_of(model, lambda m, b: m(b[0]).mean())
    compute.count_by(CountRule((1,)))
    model.eval()
    assert not compute.is_judged((torch.ones(2, 3), torch.ones(2).long())) and not isinstance(
        compute((torch.ones(2, 3), torch.ones(2).long())), Loss
    )
    model.train()
    assert isinstance(compute((torch.ones(2, 3), torch.ones(2).long())), Loss)


def test_labels_are_counted_before_the_loss_takes_them_out():
    compute = loss_of(nn.Linear(3, 2), lambda m, b: m(b["x"]).mean() + 0 * b.pop("labels").sum())
    compute.count_by(CountRule(("labels",)))
    assert int(compute({"x": torch.ones(2, 3), "labels": torch.tensor([1, -100])}).count) == 1


def test_what_says_its_count_itself_is_not_counted_again():
    own = Loss(torch.tensor(6.0), 3)
    assert counted(own, 5) is own
    assert counted("not a loss", 5) == "not a loss"


@pytest.mark.parametrize("count", [0, torch.tensor(0)])
def test_where_nothing_counts_the_total_is_nothing(count):
    loss = counted(torch.tensor(float("nan"), requires_grad=True), count)
    assert loss.total.item() == 0 and loss.mean.item() == 0


def test_what_counts_is_found_within_a_loss_over_several_devices():
    compute = loss_of(nn.Linear(3, 2), lambda m, b: m(b).mean())
    assert counted_in(compute) is compute
    assert counted_in(SimpleNamespace(counted=compute)) is compute
    assert counted_in(lambda batch: 0) is None
    assert isinstance(compute, CountedLoss)


# Models that return their loss


class Output(UserDict):
    def __getattr__(self, name):
        return self.data.get(name)


class Returning(nn.Linear):
    def forward(self, x, labels=None):
        logits = super().forward(x)
        return Output(logits=logits, **({} if labels is None else {"loss": F.cross_entropy(logits, labels)}))


def test_a_model_that_takes_labels_needs_no_loss():
    model, batch = Returning(3, 2), {"x": torch.randn(4, 3), "labels": torch.tensor([0, 1, 1, 0])}
    assert returns_loss(model)
    assert torch.equal(loss_of(model, None)(batch), model(**batch)["loss"])


def test_a_loss_of_its_own_comes_before_what_a_model_returns():
    class Both(Returning):
        def calculate_loss(self, batch):
            return torch.tensor(7.0)

    assert float(loss_of(Both(3, 2), None)({"x": torch.ones(1, 3)})) == 7


def test_a_plain_model_returns_no_loss():
    assert not returns_loss(nn.Linear(3, 2))


@pytest.mark.parametrize("wrap", [lambda loss: loss, lambda loss: {"loss": loss}, lambda loss: Output(loss=loss)])
def test_a_function_may_return_the_loss_or_what_holds_it(wrap):
    model, batch = nn.Linear(3, 2), torch.randn(4, 3)
    assert torch.equal(loss_of(model, lambda m, b: wrap(m(b).mean()))(batch), model(batch).mean())


def test_missing_labels_and_other_batches_are_refused_in_a_sentence():
    with pytest.raises(ConfigError, match="its batches need 'labels', and this one is a dict with x"):
        loss_of(Returning(3, 2), None)({"x": torch.ones(1, 3)})
    with pytest.raises(ConfigError, match="batches that are dicts with 'labels'"):
        loss_of(Returning(3, 2), None)((torch.ones(1, 3), torch.zeros(1).long()))


def test_a_sum_that_is_no_tensor_with_one_number_is_refused():
    for given in (lambda: Loss(1), lambda: Loss(), lambda: Loss(torch.ones(()), n=1)):
        with pytest.raises(ConfigError, match="it takes total, count"):
            given()
    for total in (1.0, torch.ones(3)):
        with pytest.raises(ConfigError, match="takes the summed loss, a tensor with one number"):
            as_sum(Loss(total, 3), 3)
    assert torch.compile(lambda x: Loss(x.sum(), 2).mean, backend="eager", fullgraph=True)(torch.ones(4)).item() == 2
