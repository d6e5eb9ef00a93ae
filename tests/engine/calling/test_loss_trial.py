import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

import brim
from brim.engine.calling.loss_form import TriedCriterion
from brim.engine.calling.loss_trial import settle_loss_form, two_samples
from brim.errors import ConfigError

pytestmark = pytest.mark.usefixtures("own_folder")

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)


class Samples(Dataset):
    def __init__(self):
        self.reads = 0

    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        self.reads += 1
        return X[index], Y[index]


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(X, Y, strict=True)


def compares(p, t):
    return ((p - t) ** 2).mean()


def calls(a, b):
    return F.mse_loss(a(b[0]), b[1])


ALL = {
    "columns": lambda: (X, Y), "loader": lambda: brim.Loader((X, Y), 4), "list": lambda: [(X, Y)],
    "data set": Samples, "torch loader": lambda: DataLoader(Samples(), 4, shuffle=True),
}  # fmt: skip


@pytest.mark.parametrize("kind", ALL)
def test_the_form_is_found_by_trying(kind):
    assert isinstance(settle_loss_form(compares, nn.Linear(4, 1), ALL[kind]()), TriedCriterion)
    assert settle_loss_form(calls, nn.Linear(4, 1), ALL[kind]()) is calls


def test_what_names_tell_is_not_tried():
    def loss(prediction, target):
        raise AssertionError("called")

    assert settle_loss_form(loss, nn.Linear(4, 1), (X, Y)) is loss
    assert settle_loss_form(None, nn.Linear(4, 1), (X, Y)) is None


@pytest.mark.parametrize("data", [Stream(), brim.Loader(Stream(), 4), iter([]), [X], [], [{"x": X}]])
def test_what_cannot_be_tried_is_left_a_function_of_model_and_batch(data):
    assert settle_loss_form(compares, nn.Linear(4, 1), data) is compares


def test_and_fails_with_both_forms():
    with pytest.raises(ConfigError, match=r"failed as loss_fn\(model, batch\).*loss_fn\(prediction, target\)"):
        brim.Trainer(nn.Linear(4, 1), brim.Loader(Stream(), 4), loss_fn=compares, device="cpu").fit()


def test_a_function_that_works_in_both_ways_is_refused_with_both_forms():
    with pytest.raises(ConfigError, match=r"alike; write loss_fn\(prediction, target\)"):
        settle_loss_form(lambda a, b: torch.ones((), requires_grad=True), nn.Linear(4, 1), (X, Y))


def test_a_function_that_works_in_neither_is_refused_with_what_goes_wrong():
    with pytest.raises(ConfigError, match=r"tensor of shape \(2, 1\), nor with \(model, batch\): TypeError"):
        settle_loss_form(lambda a, b: a - b, nn.Linear(4, 1), (X, Y))


def test_nothing_of_the_trial_is_left():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1))
    model[2].eval()
    seen, data = [], Samples()

    def loss(a, b):
        seen.append(a)
        torch.rand(3)
        return ((a - b) ** 2).mean()

    before, drawn = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    assert isinstance(settle_loss_form(loss, model, data), TriedCriterion)
    assert (seen, data.reads) == ([], 0)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [module.training for module in model] == [True, True, False, True]
    assert all(parameter.grad is None for parameter in model.parameters())


def trained(loss_fn, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    trainer = brim.Trainer(
        model, brim.Loader((X, Y), 5), loss_fn=loss_fn, device="cpu", epochs=2, threads=1, **settings
    )
    trainer.fit()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("settings", [{}, {"micro_batch": 2}, {"gradient_accumulation_steps": 2}])
def test_it_trains_as_torchs_own_criterion_does(settings):
    for loss_fn in (compares, lambda y_hat, y: ((y_hat - y) ** 2).mean()):
        torch.testing.assert_close(
            trained(loss_fn, **settings), trained(nn.MSELoss(), **settings), rtol=1e-6, atol=1e-7
        )


def test_the_two_samples_are_copies_and_putting_them_together_leaves_no_trace():
    class Collate:
        calls = 0

        def __call__(self, samples):
            self.calls += 1
            return default_collate(samples)

    x, collate = torch.ones(4, 3), Collate()
    two_samples((x, x))[0].zero_()
    assert two_samples(DataLoader([(row, row) for row in x], 2, collate_fn=collate)) is not None
    assert x.all() and collate.calls == 0
