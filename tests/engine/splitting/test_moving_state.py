"""State that moves while a batch is computed: after a shortage and in parts it is that of the whole batch, or named."""

import copy

import pytest
import torch
import torch.nn.functional as F
from helpers.faults import ran_out
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

import brim
from brim.errors import CannotFit

pytestmark = pytest.mark.usefixtures("own_folder")

generator = torch.Generator().manual_seed(0)
X = torch.randn(64, 8, generator=generator)
BATCHES = [(x, x[:, :1].sin()) for x in X.split(16)] * 2
EXACT = 1e-5


class Base(nn.Module):
    """Runs out of memory at the calls ``fails``, or above ``limit`` samples, after its state has moved."""

    def __init__(self, fails=(), limit=10**9):
        super().__init__()
        torch.manual_seed(0)
        self.fails, self.limit, self.calls = fails, limit, 0
        self.a = nn.Linear(8, 8)
        self.blocks = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2)])
        self.c = nn.Linear(8, 1)
        self.slow = copy.deepcopy(self.a).requires_grad_(False)

    def forward(self, x):
        y = self.hidden(x)
        if torch.is_grad_enabled():
            self.calls += 1
            if self.calls in self.fails or len(x) > self.limit:
                raise ran_out()
        return self.c(self.blocks(y))


class Spectral(Base):
    def __init__(self, **how):
        super().__init__(**how)
        spectral_norm(self.a)

    def hidden(self, x):
        return self.a(x)


class Momentum(Base):
    """An encoder that follows the trained one, with the calls that people write."""

    def hidden(self, x):
        if self.training:
            with torch.no_grad():
                for slow, fast in zip(self.slow.parameters(), self.a.parameters(), strict=True):
                    self.move(slow, fast)
        return self.a(x) - self.slow(x)

    def move(self, slow, fast):
        slow.lerp_(fast, 0.3)


class MomentumByData(Momentum):
    def move(self, slow, fast):
        slow.data.mul_(0.7).add_(fast.data, alpha=0.3)


class MomentumByNewData(Momentum):
    def move(self, slow, fast):
        slow.data = 0.7 * slow.data + 0.3 * fast.data


class Counter(Base):
    """A schedule within the model: how often it was called, as a buffer."""

    def __init__(self, **how):
        super().__init__(**how)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def hidden(self, x):
        if self.training:
            self.steps += 1
        return self.a(x) * torch.exp(-0.1 * self.steps)


class MovingMean(Base):
    def __init__(self, **how):
        super().__init__(**how)
        self.centre = nn.Module()
        self.centre.register_buffer("mean", torch.zeros(8))

    def hidden(self, x):
        x = self.a(x)
        if self.training:
            self.centre.mean.lerp_(x.detach().mean(0), 0.1)
        return x - self.centre.mean


class ReplacedMean(MovingMean):
    def hidden(self, x):
        x = self.a(x)
        self.centre.mean = 0.9 * self.centre.mean + 0.1 * x.detach().mean(0)
        return x - self.centre.mean


class Instance(Base):
    def __init__(self, **how):
        super().__init__(**how)
        self.norm = nn.InstanceNorm1d(2, track_running_stats=True)

    def hidden(self, x):
        return self.norm(self.a(x).view(-1, 2, 4)).flatten(1)


class Codebook(Base):
    """Vector quantisation: codes follow the samples that are nearest to them."""

    def __init__(self, **how):
        super().__init__(**how)
        self.codes = nn.Module()
        self.codes.register_buffer("book", torch.randn(4, 8))
        self.codes.register_buffer("used", torch.ones(4))

    def hidden(self, x):
        x = self.a(x)
        nearest = torch.cdist(x.detach(), self.codes.book).argmin(1)
        if self.training:
            for code in range(4):
                if (nearest == code).any():
                    self.codes.used[code] += (nearest == code).sum()
                    self.codes.book[code].lerp_(x.detach()[nearest == code].mean(0), 0.1)
        return x + (self.codes.book[nearest] - x).detach()


STEADY = (Spectral, Momentum, MomentumByData, MomentumByNewData, Counter)
FOLLOWING = {MovingMean: "centre", ReplacedMean: "centre", Instance: "norm", Codebook: "codes"}


def mse(model, batch):
    return F.mse_loss(model(batch[0]), batch[1])


def sgd(model):
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)


def plain(model, loss_fn=mse, batches=BATCHES):
    optimizer = sgd(model)
    for batch in copy.deepcopy(batches):
        optimizer.zero_grad()
        loss_fn(model, batch).backward()
        optimizer.step()
    return model


def stepped(model, loss_fn=mse, batches=BATCHES, **settings):
    """The same by brim's step, and what it said."""
    told = []
    step = brim.Step(model, sgd(model), loss_fn, tell=told.append, **settings)
    for batch in copy.deepcopy(batches):
        step(batch)
    return model, told


def off(model, other):
    """The norm-relative difference over weights and state."""
    mine, theirs = (torch.cat([t.detach().double().flatten() for t in m.state_dict().values()]) for m in (model, other))
    return float((mine - theirs).norm() / theirs.norm())


# One shortage, and the same batch again


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("kind", "fails"),
    [
        pytest.param(kind, fails) if (kind, fails) == (MomentumByData, 2) else (kind, fails)
        for kind in (*STEADY, *FOLLOWING)
        for fails in (1, 2, 3, 6)
    ],
)
def test_a_failed_try_leaves_nothing_in_the_state(kind, fails):
    model, _ = stepped(kind(fails=(fails,)), sliceable=False)  # its blocks are computed again, and no part of a batch
    assert model.calls > len(BATCHES)
    assert off(model, plain(kind())) <= EXACT


# In parts


@pytest.mark.matrix(3)
@pytest.mark.parametrize("how", [{"micro_batch": 4}, {"micro_batch": 5}, {}])
@pytest.mark.parametrize("kind", [pytest.param(kind) if kind is MomentumByData else kind for kind in STEADY])
def test_state_that_follows_the_weights_moves_once_for_a_batch(kind, how):
    got, told = stepped(kind() if how else kind(limit=8), **how)
    assert off(got, plain(kind())) <= EXACT
    assert not any("moves with" in sentence for sentence in told)


@pytest.mark.matrix(3)
@pytest.mark.parametrize("how", [{"micro_batch": 4}, {}])
@pytest.mark.parametrize("kind", FOLLOWING)
def test_state_that_follows_the_data_is_named_once(kind, how):
    try:
        _, told = stepped(kind() if how else kind(limit=8), **how)
    except CannotFit as error:  # what follows the batch may make its loss look across it
        assert not how and "looks across the batch" in str(error)
    else:
        assert [FOLLOWING[kind] + " moves with the data" in sentence for sentence in told].count(True) == 1


@pytest.mark.parametrize("kind", FOLLOWING)
def test_sliceable_silences_what_is_said_of_state(kind):
    _, told = stepped(kind(), micro_batch=4, sliceable=True)
    assert not told


def test_batch_norm_in_micro_batches_of_a_step_of_ones_own_is_warned_about():
    def made():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))

    got, told = stepped(made(), micro_batch=4)
    assert off(got, plain(made())) > EXACT and any("BatchNorm" in sentence for sentence in told)


def test_a_home_made_norm_is_not_sliced_in_silence():
    class Norm(Base):
        def hidden(self, x):
            x = self.a(x)
            return (x - x.mean(0)) / x.std(0)

    try:
        _, told = stepped(Norm(limit=8), nn.MSELoss())
    except CannotFit as error:
        assert "looks across the batch" in str(error)
    else:
        assert any("another training" in sentence for sentence in told)


# A criterion's own state


class Centre(nn.Module):
    """As DINO centres its targets; it runs out of memory at the call ``fails``."""

    def __init__(self, fails=0):
        super().__init__()
        self.register_buffer("centre", torch.zeros(1))
        self.fails, self.calls = fails, 0

    def forward(self, input, target):
        self.calls += 1
        self.centre.lerp_(input.detach().mean().reshape(1) + 1, 0.1)
        if self.calls == self.fails:
            raise ran_out()
        return F.mse_loss(input - self.centre, target)


def blocks():
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2)], nn.Linear(8, 1))


@pytest.mark.parametrize("fails", [1, 3])
def test_a_failed_try_leaves_nothing_in_the_criterion(fails):
    mine, theirs = Centre(fails), Centre()
    got, _ = stepped(blocks(), mine, sliceable=False)
    expected = plain(blocks(), lambda model, batch: theirs(model(batch[0]), batch[1]))
    assert off(got, expected) <= EXACT and torch.allclose(mine.centre, theirs.centre)


def test_a_criterion_that_follows_the_data_is_named():
    _, told = stepped(blocks(), Centre(), micro_batch=4)
    assert ["Centre moves with the data" in sentence for sentence in told].count(True) == 1


# State that is not in the model


class Counting(Base):
    """A schedule that is a plain attribute."""

    def hidden(self, x):
        self.steps = getattr(self, "steps", 0) + 1
        return self.a(x) * (1 - 0.9**self.steps)


def with_teacher(fails=()):
    """A loss that holds a slow copy of the model in its closure."""
    teacher, calls = Counter().requires_grad_(False), iter(range(1, 999))

    def loss_fn(model, batch):
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.3)
        if next(calls) in fails:
            raise ran_out()
        return mse(model, batch) + 3 * F.mse_loss(model(batch[0]), teacher(batch[0]))

    return loss_fn


def with_criterion(fails=()):
    criterion = Centre(next(iter(fails), 0))
    return lambda model, batch: criterion(model(batch[0]), batch[1])


@pytest.mark.parametrize("fails", [2, 5])
@pytest.mark.parametrize("make", [pytest.param(with_teacher), pytest.param(with_criterion)])
def test_a_failed_try_leaves_nothing_in_what_a_closure_holds(make, fails):
    got, _ = stepped(Counter(), make((fails,)), sliceable=False)
    assert off(got, plain(Counter(), make())) <= EXACT


def test_a_teacher_in_a_closure_moves_once_for_a_batch():
    got, told = stepped(Counter(), with_teacher(), micro_batch=4)
    assert off(got, plain(Counter(), with_teacher())) <= EXACT and told == []


@pytest.mark.parametrize(
    ("fails", "how", "sentence"),
    [((2,), {"sliceable": False}, "which it counts in Python"), ((), {"micro_batch": 4}, "counts its calls in Python")],
)
def test_a_counter_that_is_a_plain_attribute_is_named_where_it_moves_more_than_once_for_a_batch(fails, how, sentence):
    got, told = stepped(Counting(fails=fails), **how)
    assert off(got, plain(Counting())) > EXACT and any(sentence in one for one in told)


# Gradient hooks


@pytest.mark.parametrize("how", [{"micro_batch": 4}, {}])
@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_gradient_hook_that_sees_parts_is_named_once(register, how):
    def clamp(given):
        gradient = given if register == "register_hook" else given.grad
        return gradient.clamp_(-0.01, 0.01) if register == "register_hook" else None

    model = Counter(limit=10**9 if how else 8)
    getattr(model.a.weight, register)(clamp)
    _, told = stepped(model, **how)
    assert ["the gradient hook of a.weight" in sentence for sentence in told].count(True) == 1


def test_a_gradient_hook_sees_whole_batches_without_a_word():
    def hooked():
        model = Counter()
        model.a.weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
        return model

    got, told = stepped(hooked())
    assert off(got, plain(hooked())) <= EXACT and not told


# Batches that are changed


class InPlace(Base):
    def hidden(self, x):
        return self.a(x.sub_(0.5).mul_(2))


DICTS = [{"x": x, "labels": y} for x, y in BATCHES]


def popping(model, batch):
    labels = batch.pop("labels")
    return F.mse_loss(model(batch["x"]), labels)


def replacing(model, batch):
    batch["x"] = batch["x"] - 0.5
    return F.mse_loss(model(batch["x"]), batch["labels"])


CHANGES = [(InPlace, mse, BATCHES), (InPlace, popping, DICTS), (Counter, popping, DICTS), (Counter, replacing, DICTS)]


@pytest.mark.matrix(2)
@pytest.mark.parametrize(
    ("kind", "loss_fn", "batches", "how"),
    [
        pytest.param(*change, how) if change[0] is Counter and how == {"micro_batch": 16} else (*change, how)
        for change in CHANGES
        for how in ({"micro_batch": 8}, {"micro_batch": 16}, {})
    ],
)
def test_a_batch_that_is_changed_is_tried_again_as_it_came(kind, loss_fn, batches, how):
    model = kind(fails=(2, 5)) if how else kind(limit=8)
    got, _ = stepped(model, loss_fn, batches, **how)
    assert off(got, plain(kind(), loss_fn, batches)) <= EXACT


def test_a_batch_that_is_first_changed_in_a_late_step_is_refused_rather_than_computed_twice():
    class Late(InPlace):
        def hidden(self, x):
            return super().hidden(x) if self.calls > 4 else self.a(x)

    with pytest.raises(CannotFit, match="the batch had been changed in place"):
        stepped(Late(fails=(6,)))


@pytest.mark.parametrize("limit", [3, 8])
def test_predictions_of_a_model_that_changes_its_batch_are_those_of_whole_batches(limit):
    class Predicting(InPlace):
        room = 10**9

        def hidden(self, x):
            y = super().hidden(x)
            if len(x) > self.room:
                raise ran_out()
            return y

    model = Predicting()
    trainer = brim.Trainer(model, BATCHES, loss_fn=nn.MSELoss(), device="cpu", threads=1)
    expected = trainer.predict(brim.Loader((X.clone(),), batch_size=16))
    model.room = limit
    assert torch.allclose(trainer.predict(brim.Loader((X.clone(),), batch_size=16)), expected, rtol=1e-5)


def test_a_model_that_changes_trained_weights_in_a_failed_try_is_refused():
    class Writing(Base):
        def hidden(self, x):
            with torch.no_grad():
                self.a.weight.mul_(0.99)
            return self.a(x)

    with pytest.raises(CannotFit, match="a trained parameter had been changed in place"):
        stepped(Writing(fails=(1,)))
