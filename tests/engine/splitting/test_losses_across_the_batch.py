"""A loss that looks across the batch is never silently another one: exact, refused, or warned about once."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from helpers.faults import Above, Gate
from helpers.weights import weights
from torch import nn

import brim
from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.evaluation.evaluation import as_evaluator, evaluate_model
from brim.engine.step import planned_step
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.engine.step.planned_step import PlannedStep
from brim.errors import CannotFit
from brim.memory.forecast import make_setting

pytestmark = pytest.mark.usefixtures("own_folder")

FULL = Precision("32", torch.device("cpu"))
X = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
BATCHES = [(x, x + 0.1) for x in X.split(16)]


def net(blocks=False, limit=10**9, times=None):
    """With repeated blocks it can be computed with activation checkpointing."""
    torch.manual_seed(0)
    middle = [nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Sequential(nn.Linear(8, 8), nn.Tanh()))]
    return nn.Sequential(
        nn.Linear(8, 8), Gate(Above(limit, times), training=None), *(middle if blocks else ()), nn.Linear(8, 4)
    )


def contrastive(model, batch):
    one, two = (F.normalize(model(part), dim=1) for part in batch)
    return F.cross_entropy(one @ two.T / 0.1, torch.arange(len(one)))


def hardest(model, batch):
    return torch.cdist(model(batch[0]), model(batch[1])).amax(1).mean()


def centred(model, batch):
    x = model(batch[0])
    return ((x - x.mean(0)) / x.std(0) - batch[1][:, :4]).square().mean()


class TrainingOnly(nn.Module):
    """Its loss cannot be computed in evaluation mode."""

    def __init__(self, limit=10**9):
        super().__init__()
        self.inner = net(limit=limit)

    def calculate_loss(self, batch):
        assert self.training, "losses are computed in training mode only"
        return contrastive(self.inner, batch)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def plain(model, loss_fn, batches=BATCHES):
    optimizer = sgd(model.parameters())
    for batch in batches:
        optimizer.zero_grad()
        loss_fn(model, batch).backward()
        optimizer.step()
    return weights(model)


def off(model, expected):
    return float((weights(model) - expected).norm() / expected.norm())


def fit(model, loss_fn, data=BATCHES, **settings):
    settings = {"optimizer": sgd, "device": "cpu", "threads": 1, "run_dir": "run", **settings}
    brim.Trainer(model, data, loss_fn=loss_fn, **settings).fit()
    return model


def warnings_of(capsys):
    """Lines that say that this is another training."""
    return [line for line in capsys.readouterr().err.splitlines() if "another training than with the whole" in line]


# What was asked for by name is done, and warned about once


ASKED = {
    "micro_batch": ({"micro_batch": 4}, BATCHES),
    "accumulation": ({"gradient_accumulation_steps": 2}, [(x, x + 0.1) for x in X.split(8)]),
    "both": ({"gradient_accumulation_steps": 2, "micro_batch": 3}, [(x, x + 0.1) for x in X.split(8)]),
}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("loss_fn", [contrastive, hardest, centred])
def test_what_the_user_asked_for_is_warned_about_once(name, loss_fn, capsys):
    settings, data = ASKED[name]
    fit(net(), loss_fn, data, **settings)
    (said,) = warnings_of(capsys)
    assert "brim.Loss(total, count)" in said and "sliceable=True" in said


@pytest.mark.parametrize("name", ASKED)
def test_sliceable_silences_the_warning(name, capsys):
    settings, data = ASKED[name]
    fit(net(), contrastive, data, sliceable=True, **settings)
    said = capsys.readouterr().err
    assert "another training" not in said and "looks across" not in said


def test_a_loss_that_only_looks_like_it_is_not_warned_about(capsys):
    expected = plain(net(), lambda m, b: F.mse_loss(m(b[0]), b[1][:, :4]))
    assert off(fit(net(), lambda m, b: F.mse_loss(m(b[0]), b[1][:, :4]), micro_batch=4), expected) <= 1e-5
    assert not warnings_of(capsys)


def test_a_step_of_ones_own_is_warned_about_once():
    told, model = [], net()
    step = brim.Step(model, sgd(model.parameters()), contrastive, micro_batch=4, tell=told.append)
    for batch in BATCHES:
        step(batch)
    assert len(told) == 1 and "another training" in told[0]


# What brim decides by itself is exact, or refused


@pytest.mark.parametrize("loss_fn", [contrastive, hardest, centred])
def test_a_shortage_is_refused_where_nothing_else_is_left(loss_fn):
    with pytest.raises(CannotFit, match=r"looks across the batch.*the batch stays whole"):
        fit(net(limit=8), loss_fn)


def test_a_shortage_is_refused_for_a_loss_that_cannot_be_judged():
    with pytest.raises(CannotFit, match="looks across the batch"):
        fit(TrainingOnly(8), None)


@pytest.mark.parametrize("loss_fn", [contrastive, hardest, centred])
def test_a_shortage_takes_activation_checkpointing_and_stays_exact(loss_fn, capsys):
    model = net(blocks=True, limit=8, times=1)
    assert off(fit(model, loss_fn), plain(net(blocks=True), loss_fn)) <= 1e-6
    said = capsys.readouterr().err
    assert "are computed again" in said and "micro-batches of" not in said


def test_sliceable_slices_all_the_same():
    assert off(fit(net(limit=8), contrastive, sliceable=True), plain(net(), contrastive)) > 1e-3


@pytest.mark.parametrize("settings", [{"gradient_accumulation_steps": 2}, {"micro_batch": 12}])
def test_a_shortage_below_what_was_asked_for_is_not_silent(settings, capsys):
    try:
        fit(net(limit=8), contrastive, **settings)
    except CannotFit as error:
        assert "looks across" in str(error)
    else:
        assert len(warnings_of(capsys)) == 1


def planned(loss_fn, sliceable=None, batch=BATCHES[0], model=None):
    """The size that a plan chooses for a batch."""
    width = batch[0].shape[1]
    model = model or nn.Sequential(nn.Linear(width, 2048), nn.ReLU(), nn.Linear(2048, 4))
    guard = GuardedStep(EagerStep(loss_of(model, loss_fn), sgd(model.parameters()), FULL), model, sliceable=sliceable)
    PlannedStep(guard, model, loss_fn, sliceable, lambda plan, why: None).decide([batch])
    return guard.micro_batch


def mean(model, batch):
    return F.mse_loss(model(batch[0]), batch[1][:, :4])


@pytest.mark.parametrize(
    ("loss_fn", "sliceable", "size"),
    [(mean, None, 8), (mean, False, None), (contrastive, None, None), (contrastive, True, 8), (hardest, None, None)],
)
def test_a_plan_splits_what_adds_up_or_is_said_to(monkeypatch, loss_fn, sliceable, size):
    def plan_of(step, example, batches, sliceable):
        return SimpleNamespace(slices=1 if sliceable is False else 2, micro_batch=8)

    monkeypatch.setattr(planned_step, "plan_of", plan_of)
    assert planned(loss_fn, sliceable) == size


def test_a_plan_of_a_real_forecast_leaves_a_contrastive_batch_whole(monkeypatch):
    monkeypatch.setattr(planned_step, "setting_on", lambda device: make_setting("NVIDIA A10G", None, None))
    monkeypatch.setattr(planned_step, "usable_memory", lambda device: 110 << 20)
    x = torch.randn(2048, 64, generator=torch.Generator().manual_seed(1))
    assert planned(contrastive, batch=(x, x + 0.1)) is None


@pytest.mark.slow
def test_a_plan_of_a_loss_in_two_passes_counts_the_loss_of_the_whole_batch(monkeypatch):
    """Matrices of the whole batch take 16 MiB each, whatever the micro-batch is: with 80 MiB no size will do."""
    monkeypatch.setattr(planned_step, "setting_on", lambda device: make_setting("NVIDIA A10G", None, None))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 32))

    def encode(model, batch):
        return tuple(F.normalize(model(part), dim=1) for part in batch)

    def similar(one, two):
        return F.cross_entropy(one @ two.T, torch.arange(len(one), device=one.device))

    x = torch.randn(2048, 64, generator=torch.Generator().manual_seed(1))
    for room, size in ((130, 1024), (80, None)):
        monkeypatch.setattr(planned_step, "usable_memory", lambda device, room=room: room << 20)
        assert planned(brim.TwoPass(encode, similar), batch=(x, x + 0.1), model=model) == size


def test_a_micro_batch_as_large_as_the_batch_is_no_leave_to_slice():
    with pytest.raises(CannotFit, match="looks across the batch"):
        fit(net(limit=8), contrastive, micro_batch=16)


# Several devices in one process


def test_several_devices_leave_the_batch_to_one_of_them(parallel):
    told, model = [], net()
    compute = parallel(model, contrastive, told=told, sliceable=None)
    assert torch.equal(compute(BATCHES[0]), contrastive(net(), BATCHES[0]))
    assert len(told) == 1 and "looks across the batch" in told[0] and len(compute.devices) == 1


def test_several_devices_share_what_is_said_to_be_sliceable(parallel):
    told = []
    compute = parallel(net(), contrastive, told=told, sliceable=True)
    compute(BATCHES[0])
    assert not told and len(compute.devices) == 3


# Evaluation


def evaluated(model, loss_fn, sliceable=None):
    loader = brim.Loader((X, X + 0.1), batch_size=16)
    return evaluate_model(as_evaluator(loader, loss_of(model, loss_fn), FULL, sliceable=sliceable), model)["loss"]


@pytest.mark.parametrize("loss_fn", [contrastive, hardest, centred])
def test_an_evaluation_that_runs_out_of_memory_is_refused(loss_fn):
    with pytest.raises(CannotFit, match=r"looks across the batch.*give the evaluation data a smaller batch_size"):
        evaluated(net(limit=8), loss_fn)


def test_an_evaluation_is_sliced_where_that_is_allowed():
    assert evaluated(net(limit=8), contrastive, sliceable=True) != pytest.approx(evaluated(net(), contrastive))


def test_a_frozen_model_is_evaluated_whole_or_not_at_all():
    with pytest.raises(CannotFit, match="looks across the batch"):
        evaluated(net(limit=8).requires_grad_(False), contrastive)


# What the first batch does not show


def test_a_loss_that_begins_to_look_across_the_batch_is_noticed_later():
    told, weight = [], [0.0]
    model = nn.Linear(8, 4)

    def warming_up(model, batch):
        z = F.normalize(model(batch[0]), dim=1)
        return model(batch[0]).square().mean() + weight[0] * F.cross_entropy(z @ z.T / 0.1, torch.arange(len(z)))

    step = brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.1), warming_up, micro_batch=4, tell=told.append)
    for number in range(20):
        weight[0] = float(number >= 6)
        step((torch.randn(16, 8, generator=torch.Generator().manual_seed(number)),))
    assert len(told) == 1 and "another training" in told[0]


def test_batches_of_another_kind_are_asked_about_by_themselves():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embed, self.head, self.kind = nn.Embedding(12, 8), nn.Linear(8, 12), nn.Linear(8, 3)

    def loss(model, batch):
        hidden = model.embed(batch["ids"])
        if "labels" in batch:
            return F.cross_entropy(model.head(hidden).mT, batch["labels"])
        return F.cross_entropy(model.kind(hidden.mean(1)), batch["classes"])

    generator = torch.Generator().manual_seed(0)
    window = []
    for size in (4, 6, 4, 6):
        ids = torch.randint(0, 12, (size, 5), generator=generator)
        labels = ids.clone()
        labels[::2, 2:] = -100
        window.append({"ids": ids, "labels": labels} if size == 4 else {"ids": ids, "classes": ids[:, 0] % 3})
    told, model, plain = [], Both(), Both()
    brim.Step(model, torch.optim.SGD(model.parameters(), lr=1.0), loss, tell=told.append)(*window)
    counts = [(b["labels"] != -100).sum() if "labels" in b else len(b["classes"]) for b in window]
    total = sum(loss(plain, batch) * count for batch, count in zip(window, counts, strict=True)) / sum(counts)
    total.backward()
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-6)
    assert len(told) == 1 and "different kinds" in told[0]
