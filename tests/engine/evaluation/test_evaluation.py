import pytest
import torch
from torch import nn

from brim.data import Loader
from brim.engine.components.loss import Loss, loss_of
from brim.engine.components.precision import Precision
from brim.engine.evaluation.evaluation import MeanLoss, as_evaluator, evaluating
from brim.engine.evaluation.predictions import predict
from brim.errors import DataError

FULL = Precision("32", torch.device("cpu"))


def test_the_mean_loss_is_exact_with_a_ragged_tail():
    torch.manual_seed(0)
    model, x, y = nn.Linear(3, 1), torch.randn(10, 3), torch.randn(10, 1)
    evaluator = MeanLoss(Loader((x, y), batch_size=4), loss_of(model, nn.MSELoss()), FULL)
    with evaluating(model):
        assert evaluator.evaluate(model)["loss"] == pytest.approx(nn.functional.mse_loss(model(x), y).item(), rel=1e-6)


def test_the_mean_loss_weighs_by_count():
    batches = [torch.tensor([1.0, 2.0]), torch.tensor([5.0])]
    model = nn.Identity()
    evaluator = MeanLoss(batches, loss_of(model, lambda m, b: Loss(b.sum() * 2, len(b) * 4)), FULL)
    assert evaluator.evaluate(model)["loss"] == pytest.approx(16 / 12)


def test_nothing_to_evaluate_is_said():
    with pytest.raises(DataError, match="empty"):
        MeanLoss([], lambda b: b.mean(), FULL).evaluate(nn.Identity())


def test_data_that_can_evaluate_is_asked_itself():
    class Own:
        monitor, higher_is_better = "score", True

        def evaluate(self, model):
            return {"score": 1.0}

    own = Own()
    assert as_evaluator(own, lambda b: b, FULL) is own


def test_evaluating_leaves_every_mode_as_it_was():
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()))
    model.train()
    model[1].eval()
    with evaluating(model):
        assert not model[0].training
        assert not torch.is_grad_enabled()
    assert model.training
    assert model[0].training
    assert not model[1].training
    assert torch.is_grad_enabled()


def test_predictions_are_in_the_order_of_the_data_whatever_the_loader_shuffles():
    x = torch.arange(10.0).reshape(10, 1)
    outputs = predict(nn.Identity(), Loader((x,), batch_size=3, shuffle=True, drop_last=True), None, FULL)
    assert torch.equal(outputs, x)


def test_predictions_keep_their_containers():
    class Two(nn.Module):
        def forward(self, x):
            return {"double": x * 2, "pair": (x, x + 1)}

    outputs = predict(Two(), Loader(torch.arange(5.0), batch_size=2), None, FULL)
    assert outputs["double"].tolist() == [0, 2, 4, 6, 8]
    assert outputs["pair"][1].tolist() == [1, 2, 3, 4, 5]


def test_predicting_nothing_is_said():
    with pytest.raises(DataError, match="empty"):
        predict(nn.Identity(), [], None, FULL)


def test_modes_come_back_where_the_models_own_eval_fails():
    class Picky(nn.Sequential):
        def eval(self):
            self[0].eval()
            raise RuntimeError("no")

    model = Picky(nn.Dropout())
    with pytest.raises(RuntimeError, match="no"), evaluating(model):
        pass
    assert model[0].training
