"""DataParallel: the training of one device, on "devices" that are all the CPU, with everything but the sending real."""

import threading
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from helpers.examples import examples
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import brim
from brim.engine.components.loss import Loss, as_sum, loss_of
from brim.engine.components.precision import Precision
from brim.engine.evaluation.evaluation import as_evaluator, evaluate_model
from brim.engine.step.eager_step import EagerStep
from brim.workloads.recommender import EmbeddedDataset, GPT2RecommenderEnhanced

CPU = torch.device("cpu")
SIZES = (8, 5, 12, 1, 3)  # of batches, tails among them


class Tokens(nn.Module):
    """A model of ragged texts: its loss counts tokens, of which a sample may have none."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(7, 4), nn.Linear(4, 7)
        self.seen = []

    def calculate_loss(self, batch):
        self.seen.append((len(batch["ids"]), threading.current_thread().name))
        logits, real = self.out(self.table(batch["ids"]).tanh()), batch["real"]
        return Loss((F.cross_entropy(logits.mT, batch["ids"].roll(1, 1), reduction="none") * real).sum(), real.sum())


class Penalised(nn.Module):
    """A mean with a term over all weights, and the loss through a recurrent module."""

    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(1, 6, batch_first=True), nn.Linear(6, 1)

    def forward(self, x):
        return self.out(self.lstm(x[..., None])[0][:, -1])

    def calculate_loss(self, batch):
        return F.mse_loss(self(batch[0]), batch[1]) + 0.1 * sum(p.square().sum() for p in self.parameters())


def columns(step, size):
    generator = torch.Generator().manual_seed(100 * step + size)
    return torch.randn(size, 4, generator=generator), torch.randn(size, 1, generator=generator)


def texts(step, size):
    generator = torch.Generator().manual_seed(100 * step + size)
    lengths = torch.randint(0, 6, (size,), generator=generator)
    return {"ids": torch.randint(0, 7, (size, 6), generator=generator), "real": torch.arange(6) < lengths[:, None]}


def labels(step, size):
    generator = torch.Generator().manual_seed(100 * step + size)
    target = torch.randint(-1, 3, (size,), generator=generator)
    return torch.randn(size, 4, generator=generator), target  # -1 is ignored


def mlp(outputs=1):
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, outputs))


TRAININGS = {
    "mean": (mlp, nn.MSELoss(), columns),
    "tokens": (Tokens, None, texts),
    "classes": (partial(mlp, 3), nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5]), ignore_index=-1), labels),
    "penalty": (Penalised, None, columns),
    "function": (mlp, lambda model, batch: (model(batch[0]) - batch[1]).abs().mean(), columns),
}


def train(kind, parallel, devices, micro_batch=None, window=1, steps=20):
    build, loss_fn, batch = TRAININGS[kind]
    torch.manual_seed(0)
    model = build()
    compute = loss_of(model, loss_fn) if parallel is None else parallel(model, loss_fn, devices)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step = EagerStep(compute, optimizer, Precision("32", CPU), micro_batch, clip_norm=1.0)
    losses = [
        step([batch(n * window + k, SIZES[(n + k) % 5]) for k in range(window)]).loss.item() for n in range(steps)
    ]
    return model, losses


def difference(one, other):
    mine, theirs = (torch.cat([p.detach().flatten() for p in m.parameters()]).double() for m in (one, other))
    return float((mine - theirs).norm() / theirs.norm())


@cache
def alone(kind, window=1):
    return train(kind, None, 1, window=window)


CASES = [
    *((kind, 3, None, 1) for kind in TRAININGS),
    *(("tokens", devices, None, 1) for devices in (1, 2, 4)),
    *((kind, 2, 5, 1) for kind in ("mean", "tokens", "classes")),
    *((kind, 3, micro_batch, 3) for kind in ("tokens", "mean") for micro_batch in (None, 4)),
]


@pytest.mark.matrix(2)
@pytest.mark.parametrize(("kind", "devices", "micro_batch", "window"), CASES)
def test_weights_after_twenty_steps_are_those_of_one_device(kind, devices, micro_batch, window, parallel):
    plain, plain_losses = alone(kind, window)
    spread, losses = train(kind, parallel, devices, micro_batch, window)
    assert losses == pytest.approx(plain_losses, rel=1e-5)
    assert difference(spread, plain) <= 1e-6


@examples(15)
@given(size=st.integers(1, 9), devices=st.integers(1, 5), seed=st.integers(0, 99))
def test_the_loss_and_its_gradient_are_the_means_over_all_tokens(size, devices, seed, parallel):
    torch.manual_seed(seed)
    model, batch = Tokens(), texts(seed, size)
    wanted = model.calculate_loss(batch).mean
    gradients = torch.autograd.grad(wanted, list(model.parameters()))
    got = as_sum(parallel(model, None, devices)(batch), size).mean
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(torch.autograd.grad(got, list(model.parameters())), gradients)


def test_shares_differ_by_one_at_most_and_a_small_batch_uses_fewer_devices(parallel):
    model = Tokens()
    compute = parallel(model, None, 4)
    for size, shares in ((10, [2, 2, 3, 3]), (3, [1, 1, 1]), (1, [1])):
        model.seen.clear()
        compute(texts(0, size))
        assert sorted(length for length, _ in model.seen) == shares
        assert len({thread for _, thread in model.seen}) == len(shares)


class Pair(NamedTuple):
    x: torch.Tensor
    names: list


@dataclass
class Sample:
    pair: Pair
    target: torch.Tensor


def test_batches_of_any_nesting_are_shared_out(parallel):
    seen = []

    def loss(model, batch):
        pair = batch["all"].pair
        seen.append((type(pair), pair.names, batch["scale"]))
        return F.mse_loss(model(pair.x), batch["all"].target)

    model, (x, y) = mlp(), columns(0, 5)
    batch = {"all": Sample(Pair(x, list("abcde")), y), "scale": 2}
    got = as_sum(parallel(model, loss, 2)(batch), 5).mean
    torch.testing.assert_close(got, F.mse_loss(model(x), y))
    assert sorted(seen, key=str) == [(Pair, ["a", "b"], 2), (Pair, ["c", "d", "e"], 2)]


def test_mixed_precision_reaches_every_share(parallel):
    types = []

    def loss(model, batch):
        output = model(batch[0])
        types.append(output.dtype)
        return F.mse_loss(output.float(), batch[1])

    with torch.autocast("cpu", torch.bfloat16):
        parallel(mlp(), loss)(columns(0, 6))
    assert types == [torch.bfloat16] * 3


def test_evaluation_is_spread_and_exact(parallel):
    model = Tokens()
    batches = [texts(n, size) for n, size in enumerate(SIZES)]
    evaluate = [
        evaluate_model(as_evaluator(batches, compute, Precision("32", CPU)), model)["loss"]
        for compute in (loss_of(model, None), parallel(model, None, 3))
    ]
    assert evaluate[1] == pytest.approx(evaluate[0], rel=1e-6)
    assert len({thread for _, thread in model.seen}) > 1
    assert model.training


def test_kept_encodings_are_computed_once_and_the_recommender_trains_as_on_one_device(parallel):
    def trained(devices):
        torch.manual_seed(0)
        model = GPT2RecommenderEnhanced(12, 15, embed_dim=8, dataset=EmbeddedDataset(12, 15), hidden_dim=16)
        compute = parallel(model, None, devices, sliceable=True)
        step = EagerStep(compute, torch.optim.Adam(model.parameters(), lr=0.01), Precision("32", CPU))
        generator = torch.Generator().manual_seed(1)
        for _ in range(3):
            step([tuple(torch.randint(0, 12, (3, 8), generator=generator))])
        return model

    plain, spread = trained(1), trained(3)
    assert spread.items.encodings is not None
    assert difference(spread, plain) <= 1e-6
    assert len(spread.recommend(0, k=3)) == 3


def test_a_whole_run_with_a_trainer(tmp_path, parallel, monkeypatch):
    made = []

    def loss_over(devices):
        def loss_of(model, loss_fn, notes):
            made.append(parallel(model, loss_fn, devices))
            return made[-1]

        return loss_of

    def trained(devices):
        if devices > 1:
            monkeypatch.setattr("brim.engine.run.training_setup.loss_of", loss_over(devices))
        torch.manual_seed(0)
        model = mlp()
        data = brim.Loader(columns(0, 50), 12, shuffle=True)
        trainer = brim.Trainer(
            model, data, columns(1, 17), loss_fn=nn.MSELoss(), device="cpu", epochs=2, threads=1,
            run_dir=tmp_path / str(devices),
        )  # fmt: skip
        return model, trainer.fit()

    (plain, one), (spread, several) = trained(1), trained(4)
    assert len(made) == 1 and len(made[0].devices) == 4
    assert difference(spread, plain) <= 1e-6
    assert several.metrics["loss"] == pytest.approx(one.metrics["loss"], rel=1e-5)


# Means over labels


def ignoring(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], ignore_index=-100)


def test_a_mean_over_labels_is_that_of_one_device_though_shares_have_different_numbers_of_them(parallel):
    x, y = labels(3, 12)
    y = y.masked_fill(torch.arange(12) < 5, -100).clamp(min=-100).masked_fill(y == -1, -100)
    torch.manual_seed(0)
    model, told = mlp(3), []
    compute = parallel(model, ignoring, 3, told, sliceable=None)
    got, wanted = as_sum(compute((x, y)), 12).mean, ignoring(model, (x, y))
    parameters = list(model.parameters())
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(torch.autograd.grad(got, parameters), torch.autograd.grad(wanted, parameters))
    assert not told and len(compute.devices) == 3


def test_state_that_follows_the_data_is_named_for_the_parts_of_devices(parallel):
    class Centred(nn.Linear):
        def __init__(self):
            super().__init__(4, 1)
            self.register_buffer("mean", torch.zeros(1))

        def forward(self, x):
            x = super().forward(x)
            self.mean.lerp_(x.detach().mean(0), 0.1)
            return x

    told = []
    parallel(Centred(), nn.MSELoss(), 2, told, sliceable=None)(columns(0, 8))
    assert [f"{name} moves with the data" in sentence for sentence in told for name in ("Centred",)].count(True) == 1


@pytest.mark.parametrize("form", ["returned", "logged"])
def test_what_shares_log_adds_up_to_the_batch(parallel, form):
    x = torch.arange(7.0).reshape(7, 1)

    def loss(model, batch):
        if form == "logged":
            compute.notes.log("mean", batch.mean())
        found = model(batch).square().mean()
        return {"loss": found, "mean": batch.mean()} if form == "returned" else found

    compute = parallel(nn.Linear(1, 1), loss)
    step = EagerStep(compute, torch.optim.SGD(compute.model.parameters(), lr=0.1), Precision("32", CPU))
    step([x])
    totals = [number.value.total for number in step.numbers]
    assert len(totals) == 3 and sum(totals) == x.sum()
    assert sum(number.value.count for number in step.numbers) == 7


def test_what_shares_log_comes_in_their_order_whichever_is_done_first(parallel):
    begun, others, waits, batch = threading.Event(), [], [], torch.arange(4.0).reshape(4, 1)

    def loss(model, share):
        compute.notes.log("first", share[0, 0])
        if threading.current_thread() is not threading.main_thread():  # which has the first share
            others.append(threading.current_thread())
            begun.set()
        elif waits:
            begun.wait()
            others[-1].join()
        return model(share).square().mean()

    compute = parallel(nn.Linear(1, 1), loss, 2, sliceable=True)
    compute(batch)  # before the first one the loss is tried
    begun.clear()
    waits.append(True)
    with compute.notes.taking() as taken:
        compute(batch)
    assert [float(number.total) for _, number in taken.numbers] == [0, 4]
