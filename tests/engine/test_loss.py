import pytest
import torch
from torch import nn

from brim.engine.loss import Loss, as_sum, is_criterion, loss_of, predict_batch
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


@pytest.mark.parametrize("criterion", [nn.MSELoss(), nn.functional.mse_loss])
def test_torchs_losses_compare_output_and_target(criterion):
    model, x, y = nn.Linear(3, 1), torch.randn(4, 3), torch.randn(4, 1)
    assert torch.equal(loss_of(model, criterion)((x, y)), nn.functional.mse_loss(model(x), y))


def test_any_function_of_model_and_batch_is_a_loss():
    model, batch = nn.Linear(3, 1), torch.randn(4, 3)
    assert not is_criterion(lambda model, batch: model(batch).sum())
    assert torch.equal(loss_of(model, lambda m, b: m(b).sum())(batch), model(batch).sum())


def test_a_criterion_needs_pairs():
    with pytest.raises(ConfigError, match="pairs"):
        loss_of(nn.Linear(3, 1), nn.MSELoss())([torch.ones(2, 3)] * 3)


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_a_criterion_that_does_not_average_is_refused(reduction):
    with pytest.raises(ConfigError, match=f"reduction='{reduction}'"):
        loss_of(nn.Linear(3, 1), nn.MSELoss(reduction=reduction))


@pytest.mark.parametrize(
    "criterion",
    [
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(ignore_index=2),
        nn.CrossEntropyLoss(weight=torch.tensor([0.2, 1.0, 5.0])),
        nn.CrossEntropyLoss(weight=torch.tensor([0.2, 1.0, 5.0]), ignore_index=0, label_smoothing=0.1),
    ],
)
def test_slices_of_a_weighted_cross_entropy_add_up_to_torchs_mean(criterion):
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 3), torch.randn(11, 4), torch.randint(0, 3, (11,))
    compute = loss_of(model, criterion)
    parts = [as_sum(compute((x[a:b], y[a:b])), b - a) for a, b in ((0, 2), (2, 9), (9, 11))]
    total, count = sum(p.total for p in parts), sum(p.count for p in parts)
    assert torch.allclose(total / count, criterion(model(x), y), rtol=1e-5)


def test_soft_targets_are_averaged_over_samples():
    model, x, y = nn.Linear(4, 3), torch.randn(5, 4), torch.rand(5, 3)
    assert isinstance(loss_of(model, nn.CrossEntropyLoss())((x, y)), torch.Tensor)


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


@pytest.mark.parametrize("criterion", [nn.CrossEntropyLoss(), nn.functional.cross_entropy])
@pytest.mark.parametrize("slices", [[(0, 8)], [(0, 4), (4, 8)], [(n, n + 1) for n in range(8)]])
def test_slices_in_which_every_target_is_ignored_do_no_harm(criterion, slices):
    torch.manual_seed(0)
    model, x = nn.Linear(4, 2), torch.randn(8, 4)
    y = torch.tensor([-100, -100, -100, -100, 0, 1, -100, 1])
    compute = loss_of(model, criterion)
    parts = [as_sum(compute((x[a:b], y[a:b])), b - a) for a, b in slices]
    mean = sum(part.total for part in parts) / sum(part.count for part in parts)
    (gradient,) = torch.autograd.grad(mean, [model.bias])
    (expected,) = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), [model.bias])
    assert torch.allclose(gradient, expected, rtol=1e-4)


def test_batchmean_is_a_mean_over_samples():
    assert (
        loss_of(nn.Linear(3, 3), nn.KLDivLoss(reduction="batchmean"))((torch.rand(2, 3), torch.rand(2, 3))).dim() == 0
    )


def test_a_dict_is_not_taken_for_a_pair():
    with pytest.raises(ConfigError, match="pairs"):
        loss_of(nn.Linear(3, 1), nn.MSELoss())({"x": torch.ones(2, 3), "y": torch.ones(2, 1)})


def test_a_batch_of_several_parts_needs_a_predict_of_the_models_own():
    with pytest.raises(ConfigError, match=r"no predict\(batch\)"):
        predict_batch(nn.Linear(3, 1), (torch.ones(2, 3), torch.ones(2, 1)), None)
