"""Numbers that are not finite: the batch is named and kept, and the run stops, leaves the step out or goes back."""

import json
import math

import pytest
import torch
from safetensors import safe_open
from torch import nn

import brim
from brim.engine.step.nonfinite import MOST_IN_A_ROW, BadStep, NonfinitePolicy, are_finite, step_if_finite, write_batch
from brim.errors import BadNumbers

X = torch.randn(96, 4, generator=torch.Generator().manual_seed(1))
Y = X.sum(1, keepdim=True)
BATCH = 8


def poisoned(*rows: int, value: float = math.nan) -> tuple[torch.Tensor, torch.Tensor]:
    x = X.clone()
    for row in rows:
        x[row, 0] = value
    return x, Y.clone()


def train(tmp_path, data, on_nan="stop", model=None, name="run", **settings):
    torch.manual_seed(0)
    model = model or nn.Linear(4, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.1)
    settings = {"optimizer": "adam", "lr": 0.01, "log_every": 5, "threads": 1, "device": "cpu", **settings}
    trainer = brim.Trainer(
        model, brim.Loader(data, BATCH, shuffle=False), loss_fn=nn.MSELoss(), on_nan=on_nan, run_dir=tmp_path / name,
        **settings,
    )  # fmt: skip
    result = trainer.fit()
    return [parameter.detach().clone() for parameter in model.parameters()], result


def by_hand(data, left_out: set[int], epochs: int = 1):
    """The plain loop, without the update of these steps."""
    model = nn.Linear(4, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    step = 0
    for _ in range(epochs):
        for start in range(0, len(X), BATCH):
            step += 1
            optimizer.zero_grad()
            nn.functional.mse_loss(model(data[0][start : start + BATCH]), data[1][start : start + BATCH]).backward()
            if step not in left_out:
                optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


class Scale(torch.autograd.Function):
    """Leaves values alone and multiplies gradients."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


class ExplodesAtMarks(nn.Linear):
    """Its gradient is infinite where a sample is marked by a large value; its loss is finite everywhere."""

    def forward(self, x):
        marked = bool((x[:, 0] > 1e5).any())
        return Scale.apply(super().forward(x.clamp(-10, 10)), math.inf if marked else 1.0)


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_stop_names_the_batch_and_keeps_it(tmp_path):
    data = poisoned(20)
    with pytest.raises(BadNumbers, match=r"nan at step 3 \(epoch 1, samples 16 to 23.*bad-batches/step-000000003"):
        train(tmp_path, data)
    with safe_open(tmp_path / "run" / "bad-batches" / "step-000000003.safetensors", "pt") as kept:
        torch.testing.assert_close(kept.get_tensor("0.0"), data[0][16:24], rtol=0, atol=0, equal_nan=True)
        assert torch.equal(kept.get_tensor("0.1"), data[1][16:24])
        assert json.loads(kept.metadata()["about"]) == {"step": 3, "epoch": 1, "first sample": 16}


def test_skip_leaves_the_update_out_and_nothing_else(tmp_path):
    data = poisoned(20, 70)
    trained, result = train(tmp_path, data, on_nan="skip", epochs=2)
    assert result.steps == 24
    assert same(trained, by_hand(data, {3, 9, 15, 21}, epochs=2))
    assert len(list((tmp_path / "run" / "bad-batches").iterdir())) == 4


@pytest.mark.gpu
@pytest.mark.usefixtures("captured_whatever_it_gains")
@pytest.mark.parametrize("capture", ["off", "auto"])
@pytest.mark.parametrize("on_nan", ["skip", "rewind"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", {"name": "sgd", "momentum": 0.9}, "rmsprop"], ids=str)
def test_on_a_gpu_the_same_steps_are_left_out(tmp_path, optimizer, on_nan, capture):
    data = poisoned(20, 70)
    settings = {"on_nan": on_nan, "epochs": 3, "optimizer": optimizer}
    on_host, _ = train(tmp_path, data, name="host", **settings)
    trained, result = train(tmp_path, data, device="cuda", capture=capture, name="gpu", **settings)
    assert result.steps == 36
    for own, expected in zip(trained, on_host, strict=True):
        torch.testing.assert_close(own.cpu(), expected, rtol=1e-4, atol=1e-6)
    assert len(list((tmp_path / "gpu" / "bad-batches").iterdir())) >= 4
    if optimizer != "rmsprop":  # whose numbers the host has to look at
        log = (tmp_path / "gpu" / "log.txt").read_text()
        assert ("steps were replayed" in log) is (capture == "auto"), log


def test_skip_also_looks_at_gradients(tmp_path):
    data = poisoned(20, value=1e6)
    trained, _ = train(tmp_path, data, on_nan="skip", model=ExplodesAtMarks(4, 1))
    assert same(trained, by_hand((data[0].clamp(-10, 10), data[1]), {3}))
    said = (tmp_path / "run" / "log.txt").read_text()
    assert "the loss or a gradient is not finite at step 3 " in said and "its update is left out" in said


def test_skip_ends_after_many_in_a_row(tmp_path):
    data = poisoned(*range(len(X)))
    with pytest.raises(BadNumbers, match=f"{MOST_IN_A_ROW}th step in a row"):
        train(tmp_path, data, on_nan="skip")


@pytest.mark.parametrize("checkpoint_every", [None, 2, 5])
def test_rewind_ends_with_the_weights_of_skipping(tmp_path, checkpoint_every):
    data = poisoned(60)
    trained, result = train(tmp_path, data, on_nan="rewind", epochs=2, checkpoint_every=checkpoint_every)
    assert result.steps == 24
    assert same(trained, by_hand(data, {8, 20}, epochs=2))
    said = (tmp_path / "run" / "log.txt").read_text()
    assert said.count("going back to the last checkpoint") == 1
    assert said.count("its update is left out") == 2


@pytest.mark.parametrize("checkpoint_every", [3, 8])
def test_rewind_finds_a_gradient_that_was_bad_before_the_loss_was(tmp_path, checkpoint_every):
    data = poisoned(60, value=1e6)
    trained, _ = train(tmp_path, data, on_nan="rewind", model=ExplodesAtMarks(4, 1), checkpoint_every=checkpoint_every)
    assert same(trained, by_hand((data[0].clamp(-10, 10), data[1]), {8}))


def test_no_checkpoint_is_made_of_weights_that_are_not_finite(tmp_path):
    class Spoils(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            if step == 5:
                with torch.no_grad():
                    trainer.model.weight[0, 0] = math.nan

    with pytest.raises(BadNumbers, match="weights are not finite after step 5"):
        train(tmp_path, (X, Y), callbacks=[Spoils()], checkpoint_every=5)
    assert not list((tmp_path / "run" / "checkpoints").glob("step-*"))


def test_a_run_that_left_steps_out_resumes_like_any_other(tmp_path):
    data = poisoned(20, 70)
    whole, _ = train(tmp_path, data, on_nan="skip", epochs=2, name="whole")
    train(tmp_path, data, on_nan="skip", max_steps=10, name="parts")
    torch.manual_seed(5)
    model = nn.Linear(4, 1)
    brim.Trainer(
        model, brim.Loader(data, BATCH, shuffle=False), loss_fn=nn.MSELoss(), device="cpu", on_nan="skip", epochs=2,
        optimizer="adam", lr=0.01, threads=1, run_dir=tmp_path / "parts",
    ).fit(resume="auto")  # fmt: skip
    assert same(whole, [parameter.detach() for parameter in model.parameters()])


def test_an_update_is_left_out_whole():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    assert step_if_finite(torch.tensor(1.0), optimizer) == 1.0
    before, state = model.weight.detach().clone(), optimizer.state[model.weight]
    moments, count = state["exp_avg"].clone(), state["step"].clone()
    model.bias.grad[0] = math.inf
    assert step_if_finite(torch.tensor(1.0), optimizer).isnan()
    model.bias.grad[0] = 0.0
    assert step_if_finite(torch.tensor(math.inf), optimizer).isnan()
    assert torch.equal(model.weight, before) and torch.equal(state["exp_avg"], moments) and state["step"] == count


def test_are_finite():
    assert are_finite([]) and are_finite([torch.ones(2), torch.empty(0), torch.ones(2, dtype=torch.int64)])
    assert are_finite([torch.full((4,), 6e4, dtype=torch.float16)])
    for bad in (math.nan, math.inf, -math.inf):
        assert not are_finite([torch.ones(2), torch.tensor([1.0, bad])])


def test_batches_of_any_nesting_are_written(tmp_path):
    block = torch.arange(12.0).reshape(4, 3)
    batch = [{"a": block[1:3], "b": (torch.ones(2), "text")}, torch.tensor([True])]
    write_batch(batch, tmp_path / "deep" / "batch.safetensors", {"step": 1})
    with safe_open(tmp_path / "deep" / "batch.safetensors", "pt") as kept:
        assert set(kept.keys()) == {"0.a", "0.b.0", "1"}
        assert torch.equal(kept.get_tensor("0.a"), block[1:3])
        assert kept.metadata()["0.b.1"] == "'text'"


def test_a_batch_that_cannot_be_read_again_stops_nothing(tmp_path):
    def broken(bad):
        raise OSError("gone")

    warned = []
    guard = NonfinitePolicy("skip", tmp_path, warned.append, broken)
    guard.on_nonfinite(BadStep(3, 0, 16, 8, math.nan))
    assert "could not be kept (OSError: gone)" in warned[0] and "left out" in warned[0]


def test_only_neighbours_are_in_a_row(tmp_path):
    guard = NonfinitePolicy("skip", tmp_path, lambda sentence: None)
    for step in range(1, 8 * MOST_IN_A_ROW, 2):
        guard.on_nonfinite(BadStep(step, 0, 0, 8, math.nan))
    with pytest.raises(BadNumbers):
        for step in range(1000, 1000 + MOST_IN_A_ROW):
            guard.on_nonfinite(BadStep(step, 0, 0, 8, math.nan))


@pytest.mark.parametrize("on_nan", ["skip", "rewind"])
def test_a_step_that_is_left_out_leaves_nothing_in_the_statistics_of_norms(tmp_path, on_nan):
    def norm():
        return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))

    model, data = norm(), poisoned(20)
    train(tmp_path, data, on_nan=on_nan, model=model)
    assert all(bool(buffer.isfinite().all()) for buffer in model.buffers())
    clean = norm()
    kept = torch.cat([data[0][:16], data[0][24:]]), torch.cat([data[1][:16], data[1][24:]])
    train(tmp_path, kept, model=clean, name="clean")  # the same steps but the one
    assert torch.allclose(model[0].running_mean, clean[0].running_mean, atol=1e-6)


def test_statistics_that_are_not_finite_make_no_checkpoint(tmp_path):
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))
    model[0].running_var[0] = math.inf
    guard = NonfinitePolicy("stop", tmp_path, lambda sentence: None)
    with pytest.raises(BadNumbers, match="not finite after step 3"):
        guard.check_weights(model, 3)


def test_a_frozen_mask_of_infinities_is_not_taken_for_bad_weights(tmp_path):
    class Masked(nn.Linear):
        def __init__(self):
            super().__init__(4, 1)
            self.mask = nn.Parameter(torch.tensor([0.0, -math.inf]), requires_grad=False)

        def forward(self, x):
            return super().forward(x) + self.mask[0]

    model = Masked()
    result = brim.Trainer(
        model, (X, Y), loss_fn=nn.MSELoss(), device="cpu", threads=1, run_dir=tmp_path / "run"
    ).fit()  # fmt: skip
    assert result.ended == "done" and list((tmp_path / "run" / "checkpoints").glob("step-*"))


def test_sparse_gradients_are_looked_at_too():
    model = nn.Embedding(8, 2, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    (model(torch.tensor([1, 2])).sum() * math.inf).backward()
    assert step_if_finite(torch.tensor(1.0), optimizer).isnan()
    assert torch.equal(model.weight, before)
    optimizer.zero_grad()
    model(torch.tensor([1, 2])).sum().backward()
    assert step_if_finite(torch.tensor(1.0), optimizer) == 1.0
    assert not torch.equal(model.weight, before)
