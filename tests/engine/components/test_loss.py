import warnings
from collections import UserDict
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import brim
from brim.engine.components.loss import (
    CountedLoss,
    Loss,
    as_sum,
    counted,
    counted_in,
    is_criterion,
    is_torchs_criterion,
    loss_of,
    predict_batch,
    returns_loss,
)
from brim.engine.components.loss_count import SAMPLES, CountRule
from brim.errors import ConfigError, DataError


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


# Criteria that inherit from torch's, and that change


class Focal(nn.CrossEntropyLoss):
    def forward(self, input, target):
        errors = F.cross_entropy(input, target, reduction="none")
        return ((1 - torch.exp(-errors)) ** 2 * errors).mean()


class Regularised(nn.CrossEntropyLoss):
    def forward(self, input, target):
        return super().forward(input, target) + 0.1 * input.square().mean()


class Renamed(nn.NLLLoss):
    def forward(self, input, target):
        return super().forward(input.log_softmax(1), target)


def patched():
    criterion = nn.CrossEntropyLoss()
    criterion.forward = lambda output, target: output.square().mean()
    return criterion


def hooked():
    criterion = nn.CrossEntropyLoss()
    criterion.register_forward_hook(lambda module, inputs, output: output * 3)
    return criterion


@pytest.mark.parametrize("make", [Focal, Regularised, Renamed, patched, hooked])
@pytest.mark.parametrize("settings", [{}, {"micro_batch": 3}, {"gradient_accumulation_steps": 2}])
def test_a_criterion_with_a_forward_of_its_own_is_called_as_it_is(make, settings, tmp_path):
    torch.manual_seed(0)
    x, y, model = torch.randn(16, 4), torch.randint(0, 3, (16,)), nn.Linear(4, 3)
    start, plain, criterion = model.weight.detach().clone(), nn.Linear(4, 3), make()
    plain.load_state_dict(model.state_dict())
    parts = 2 if "gradient_accumulation_steps" in settings else 1
    brim.Trainer(
        model, list(zip(x.split(16 // parts), y.split(16 // parts), strict=True)), loss_fn=make(), device="cpu",
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1), threads=1, run_dir=tmp_path / "run", **settings,
    ).fit()  # fmt: skip
    criterion(plain(x), y).backward()
    step = -0.1 * plain.weight.grad
    assert float((model.weight.detach() - start - step).norm() / step.norm()) <= 1e-4


def test_only_torchs_own_criteria_are_known():
    assert is_torchs_criterion(nn.MSELoss()) and is_torchs_criterion(F.mse_loss)
    assert not any(map(is_torchs_criterion, (Focal(), patched(), None, lambda m, b: 0)))


def test_what_a_callback_changes_on_a_criterion_is_seen():
    model, x, y = nn.Linear(4, 3), torch.randn(8, 4), torch.randint(0, 3, (8,))
    criterion = nn.CrossEntropyLoss()
    compute = loss_of(model, criterion)
    for change in ({"label_smoothing": 0.3}, {"ignore_index": 0}, {"weight": torch.tensor([0.1, 1.0, 5.0])}):
        for name, value in change.items():
            setattr(criterion, name, value)
        assert torch.allclose(as_sum(compute((x, y)), 8).mean, criterion(model(x), y))
    criterion.reduction = "sum"
    with pytest.raises(ConfigError, match="reduction='sum'"):
        compute((x, y))


@pytest.mark.parametrize("criterion", [nn.MSELoss(), nn.L1Loss(), nn.HuberLoss(), nn.functional.mse_loss])
def test_a_column_beside_a_vector_is_refused(criterion):
    compute = loss_of(nn.Linear(3, 1), criterion)
    with pytest.raises(DataError, match=r"\(4, 1\) and the targets \(4,\).*y.reshape\(-1, 1\)"):
        compute((torch.ones(4, 3), torch.ones(4)))
    with pytest.raises(DataError, match="compare each output with every target"):
        loss_of(nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), criterion)((torch.ones(4, 3), torch.ones(4, 1)))


def test_other_shapes_that_torch_lets_fit_are_left_alone():
    model = nn.Linear(3, 1)
    for target in (torch.ones(4, 1), torch.ones(1), torch.ones(())):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = loss_of(model, nn.MSELoss())((torch.ones(4, 3), target))
            assert torch.equal(found, nn.functional.mse_loss(model(torch.ones(4, 3)), target))
    assert loss_of(model, nn.MSELoss())((torch.ones(1, 3), torch.ones(1))).isfinite()


def test_a_sum_that_is_no_tensor_with_one_number_is_refused():
    for given in (lambda: Loss(1), lambda: Loss(), lambda: Loss(torch.ones(()), n=1)):
        with pytest.raises(ConfigError, match="it takes total, count"):
            given()
    for total in (1.0, torch.ones(3)):
        with pytest.raises(ConfigError, match="takes the summed loss, a tensor with one number"):
            as_sum(Loss(total, 3), 3)
    assert torch.compile(lambda x: Loss(x.sum(), 2).mean, backend="eager", fullgraph=True)(torch.ones(4)).item() == 2
