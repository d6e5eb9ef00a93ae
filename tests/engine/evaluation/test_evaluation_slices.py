"""Evaluation in slices gives the numbers of evaluation in one piece, and leaves training alone."""

import gc
import weakref

import pytest
import torch
from helpers import faults
from helpers.faults import ran_out
from torch import nn

from brim.data import Loader
from brim.engine.components.loss import Loss, loss_of
from brim.engine.components.precision import Precision
from brim.engine.evaluation.evaluation import MeanLoss, evaluate_model
from brim.engine.evaluation.evaluation_slices import EvaluationSlices, FittingSize, evaluate_in_parts
from brim.engine.evaluation.predictions import predict
from brim.errors import CannotFit

FULL = Precision("32", torch.device("cpu"))
torch.manual_seed(0)
X, Y = torch.randn(22, 3), torch.randn(22, 1)


class Gate(faults.Gate):
    """Runs out of memory when more than ``limit`` samples go through at once."""

    def __init__(self, limit=10**9):
        super().__init__(faults.Above(limit), training=None)
        self.seen = []

    def forward(self, x):
        self.seen.append(len(x))
        return super().forward(x)


def net(limit=10**9):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), Gate(limit), nn.Dropout(0.5), nn.Linear(4, 1))


def mean_loss(model, loss_fn=None):
    return MeanLoss(Loader((X, Y), batch_size=8), loss_of(model, loss_fn or nn.MSELoss()), FULL)


def counted(model, batch):
    weight = (batch[0][:, :1] > 0).float()
    return Loss(((model(batch[0]) - batch[1]).square() * weight).sum(), weight.sum())


@pytest.mark.matrix(4)
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("loss_fn", [nn.MSELoss(), counted])
def test_the_mean_loss_in_slices_is_the_mean_loss(limit, loss_fn):
    whole, sliced = net(), net(limit)
    expected = evaluate_model(mean_loss(whole, loss_fn), whole)["loss"]
    assert evaluate_model(mean_loss(sliced, loss_fn), sliced)["loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("limit", [1, 3, 5])
def test_predictions_in_slices_are_complete_and_in_order(limit):
    data = Loader((X,), batch_size=8)
    expected, said = predict(net(), data, None, FULL), []
    assert torch.allclose(predict(net(limit), data, None, FULL, tell=said.append), expected, rtol=1e-6)
    assert len(expected) == len(X)
    assert "out of memory in the prediction" in said[0]


def test_without_a_failure_batches_go_through_whole():
    model = net()
    evaluate_model(mean_loss(model), model)
    assert model[1].seen == [8, 8, 6]


def test_a_size_that_was_found_stays():
    model = net(4)
    evaluator = mean_loss(model)
    evaluate_model(evaluator, model)
    model[1].seen.clear()
    evaluate_model(evaluator, model)
    assert model[1].seen == [4, 4, 4, 4, 4, 2]


def test_what_was_computed_before_the_failure_is_not_computed_again():
    slices, done = EvaluationSlices(FULL, sliceable=True), []
    slices.size = 4

    def compute(part):
        if len(part) > 2 and len(done) >= 1:
            raise ran_out()
        done.extend(part.tolist())
        return part

    assert torch.cat(slices(torch.arange(8), compute)).tolist() == list(range(8))
    assert done == list(range(8))


def test_a_single_sample_that_is_too_large_cannot_fit():
    model = net(0)
    with pytest.raises(CannotFit, match=r"out of memory in the evaluation.*2\.00 GiB.*a single sample is too much"):
        evaluate_model(mean_loss(model), model)
    with pytest.raises(CannotFit, match=r"in the prediction.*single sample"):
        predict(model, Loader((X,), batch_size=8), None, FULL)


@pytest.mark.parametrize("error", [ValueError("odd"), KeyboardInterrupt()], ids=repr)
def test_other_errors_pass_as_they_are(error):
    def compute(part):
        raise error

    with pytest.raises(type(error)) as caught:
        EvaluationSlices(FULL)(X, compute)
    assert caught.value is error


def test_autocast_is_on_in_slices_too():
    slices = EvaluationSlices(Precision("bf16", torch.device("cpu")))
    slices.size = 4
    assert {out.dtype for out in slices(X, nn.Linear(3, 2))} == {torch.bfloat16}


def test_the_failed_computation_is_gone_before_the_next_try_begins():
    seen, gone = [], []

    def compute(part):
        if seen:
            gone.append(seen[0]() is None)
        kept = part * 2
        if not seen:
            seen.append(weakref.ref(kept))
            raise ran_out()
        return part

    gc.disable()
    try:
        EvaluationSlices(FULL)(X, compute)
    finally:
        gc.enable()
    assert gone[0]


def test_an_evaluation_loss_across_the_batch_is_not_sliced_in_silence():
    def contrastive(model, batch):
        return nn.functional.cross_entropy(model(batch[0]) @ batch[1].T, torch.arange(len(batch[0])))

    model = net(4)
    with pytest.raises(CannotFit, match="looks across the batch"):
        evaluate_model(mean_loss(model, contrastive), model)


# Evaluators with a batch size of their own


class Own:
    monitor, higher_is_better = "score", True

    def __init__(self, batch_size):
        self.batch_size = batch_size

    def evaluate(self, model):
        parts = [model(part) for part in X.split(self.batch_size)]
        return {"score": float(torch.cat(parts).double().sum()), "size": self.batch_size}


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_an_evaluator_gets_a_smaller_batch_size(limit):
    expected, own = evaluate_model(Own(16), net()), Own(16)
    metrics = evaluate_model(own, net(limit))
    assert metrics["score"] == pytest.approx(expected["score"], rel=1e-6)
    assert metrics["size"] <= limit
    assert own.batch_size == 16  # it is the user's


def test_a_size_that_fitted_is_remembered_for_the_next_evaluation():
    sizes = []

    class Noting(Own):
        def evaluate(self, model):
            sizes.append(self.batch_size)
            return super().evaluate(model)

    own, fitting = Noting(16), FittingSize()
    for _ in range(2):
        evaluate_model(own, net(5), fitting)
    assert sizes == [16, 8, 4, 4] and own.batch_size == 16
    own.batch_size = 2  # the user's own is smaller still
    evaluate_model(own, net(5), fitting)
    assert sizes[-1] == own.batch_size == 2


def test_the_batch_size_is_put_back_after_an_error_too():
    class FailsWhenSmall(Own):
        def evaluate(self, model):
            if self.batch_size < 16:
                raise KeyError("user 7")
            raise ran_out()

    own = FailsWhenSmall(16)
    with pytest.raises(KeyError, match="user 7"):
        evaluate_model(own, net())
    assert own.batch_size == 16


def test_a_batch_size_that_cannot_be_set_is_one_sentence():
    class ReadOnly(Own):
        batch_size = property(lambda self: 16)

        def __init__(self):
            pass

    with pytest.raises(CannotFit, match="ReadOnly has no batch_size"):
        evaluate_model(ReadOnly(), net(3))


def test_other_errors_of_an_evaluator_pass_as_they_are():
    class Broken(Own):
        def evaluate(self, model):
            raise KeyError("user 7")

    own = Broken(16)
    with pytest.raises(KeyError, match="user 7"):
        evaluate_in_parts(own, net())
    assert own.batch_size == 16


@pytest.mark.parametrize("batch_size", [1, None, "auto"])
def test_an_evaluator_that_cannot_be_made_smaller_cannot_fit(batch_size):
    class Always(Own):
        def evaluate(self, model):
            raise ran_out()

    with pytest.raises(CannotFit, match="evaluation"):
        evaluate_in_parts(Always(batch_size), net())


def test_an_evaluation_that_begins_anew_draws_the_same_numbers():
    class Sampling(Own):
        def evaluate(self, model):
            drawn = torch.rand(())
            return {**super().evaluate(model), "drawn": float(drawn)}

    drawn = []
    for limit in (99, 4):
        torch.manual_seed(3)
        metrics = evaluate_model(Sampling(16), net_seeded(limit))
        drawn.append((metrics["drawn"], float(torch.rand(()))))
    assert drawn[0] == drawn[1]


def net_seeded(limit):
    with torch.random.fork_rng():
        return net(limit)


# What a loss counts


def ragged(size=22):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 2, (size,), generator=generator).masked_fill(torch.arange(size) % 3 == 0, -100)


def ignoring(model, batch):
    return nn.functional.cross_entropy(model(batch[0]).expand(-1, 2) * torch.tensor([1.0, -1.0]), batch[1])


@pytest.mark.parametrize("limit", [10**9, 5, 4])
def test_a_mean_over_labels_is_that_of_all_at_once_in_batches_and_in_slices(limit):
    whole, model, y = net().eval(), net(limit), ragged()
    with torch.no_grad():
        expected = float(ignoring(whole, (X, y)))
    evaluator = MeanLoss(Loader((X, y), batch_size=8), loss_of(model, ignoring), FULL)
    assert evaluate_model(evaluator, model)["loss"] == pytest.approx(expected, rel=1e-5)


def test_two_samples_that_do_not_tell_what_is_counted_are_a_reason_to_refuse():
    model, y = net(2), ragged()
    evaluator = MeanLoss(Loader((X, y), batch_size=8), loss_of(model, ignoring), FULL)
    with pytest.raises(CannotFit, match="smaller batch_size"):
        evaluate_model(evaluator, model)


def test_an_evaluation_whose_loss_cannot_be_told_is_not_sliced():
    def whole_batches_only(model, batch):
        assert len(batch[0]) in (8, 6), "only whole batches"
        return (model(batch[0]) - batch[1]).square().mean()

    model = net(4)
    with pytest.raises(CannotFit, match=r"cannot be told.*smaller batch_size"):
        evaluate_model(mean_loss(model, whole_batches_only), model)


def test_predictions_whose_rows_depend_on_each_other_are_not_sliced():
    class Centring(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net(4)

        def forward(self, x):
            x = self.inner(x)
            return x - x.mean(0)

    with pytest.raises(CannotFit, match="its rows depend on each other"):
        predict(Centring(), Loader((X,), batch_size=8), None, FULL)
