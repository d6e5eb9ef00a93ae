"""torch's own criteria, and those that inherit from them or change: the mean that torch computes."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import brim
from brim.engine.calling.criterion import is_criterion, is_torchs_criterion
from brim.engine.components.loss import as_sum, loss_of
from brim.errors import ConfigError, DataError


@pytest.mark.parametrize("criterion", [nn.MSELoss(), nn.functional.mse_loss])
def test_torchs_losses_compare_output_and_target(criterion):
    model, x, y = nn.Linear(3, 1), torch.randn(4, 3), torch.randn(4, 1)
    assert torch.equal(loss_of(model, criterion)((x, y)), nn.functional.mse_loss(model(x), y))


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


def test_a_function_of_model_and_batch_is_no_criterion():
    assert not is_criterion(lambda model, batch: model(batch).sum())
