"""The moving average of weights in a run, against torch's AveragedModel in a loop by hand."""

import copy
import signal
import weakref
from pathlib import Path

import pytest
import torch
from helpers.callbacks import StopAt
from helpers.weights import weights
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils._python_dispatch import TorchDispatchMode

import brim
from brim.engine.checkpoints.weights import load_weights
from brim.engine.state.weight_average import WeightAverage
from brim.errors import CannotFit, ConfigError, Interrupted, RunFolderError

pytestmark = pytest.mark.usefixtures("own_folder")

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)
DECAY = 0.8


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=0.02)


def trainer(model, **settings):
    fixed = {"loss_fn": nn.MSELoss(), "optimizer": adam, "device": "cpu", "threads": 1, "run_dir": "run", "epochs": 3}
    return brim.Trainer(model, brim.Loader((X, Y), batch_size=8), **{**fixed, "ema": DECAY, **settings})


def plain_loop(epochs=3, accumulated=1, skipped=()):
    """The model as trained, and the average of its weights."""
    torch.set_num_threads(1)
    model = net()
    averaged, optimizer = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY)), adam(model.parameters())
    torch.manual_seed(0)
    step = 0
    for epoch in range(epochs):
        batches = list(brim.Loader((X, Y), batch_size=8).batches(0, epoch))
        for start in range(0, len(batches), accumulated):
            window, step = batches[start : start + accumulated], step + 1
            optimizer.zero_grad()
            for x, y in window:
                (nn.functional.mse_loss(model(x), y) * len(x) / sum(len(x) for x, _ in window)).backward()
            if step not in skipped:
                optimizer.step()
                averaged.update_parameters(model)
    return model, averaged.module


def test_fit_leaves_the_average_that_a_loop_by_hand_has():
    model, (trained, expected) = net(), plain_loop()
    made = trainer(model)
    made.fit()
    assert torch.equal(weights(model), weights(expected)) and not torch.equal(weights(model), weights(trained))
    assert torch.equal(weights(made.ema_model), weights(expected))
    assert not any(weight.requires_grad for weight in made.ema_model.parameters())
    assert all(torch.equal(b, dict(expected.named_buffers())[n]) for n, b in model.named_buffers())


def test_it_is_updated_once_a_step_whatever_parts_that_has():
    _, expected = plain_loop(accumulated=2)
    model = net()
    trainer(model, gradient_accumulation_steps=2).fit()
    assert torch.allclose(weights(model), weights(expected), atol=1e-6)


def test_the_training_itself_is_not_touched():
    trainer(net(), eval_data=[(X, Y)], eval_every="5 steps").fit()
    found, (trained, expected) = net(), plain_loop()
    load_weights(found, Path("run/checkpoints/step-000000015/model.safetensors"))
    assert torch.equal(weights(found), weights(trained))
    load_weights(found, Path("run/checkpoints/best/model.safetensors"))
    assert torch.equal(weights(found), weights(expected))


class MadeLate(nn.Module):
    """Buffers that the first forward pass fills, registers and makes longer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.register_buffer("filled", None)
        self.register_buffer("longer", torch.zeros(1))

    def forward(self, x):
        if self.filled is None:
            self.filled, self.longer = x.mean(), x.mean(0)
            self.register_buffer("registered", x.mean(0), persistent=False)
        self.registered.add_(1)
        return self.linear(x)


def test_buffers_that_a_forward_pass_makes_are_those_of_the_model():
    model = MadeLate()
    made = trainer(model)
    made.fit()
    buffers, expected = (dict(one.named_buffers()) for one in (made.ema_model, model))
    assert buffers.keys() == expected.keys() == {"filled", "longer", "registered"}
    assert all(torch.equal(buffers[name], expected[name]) for name in expected)
    assert made.ema_model.state_dict().keys() == model.state_dict().keys()


def test_evaluations_are_those_of_the_average():
    metrics = trainer(net(), eval_data=[(X, Y)]).fit().metrics
    _, expected = plain_loop()
    expected.eval()
    with torch.no_grad():
        assert metrics["loss"] == pytest.approx(float(nn.functional.mse_loss(expected(X), Y)), rel=1e-6)


def test_the_run_folder_gives_the_average_where_nothing_is_evaluated():
    model = net()
    trainer(model).fit()
    found = net()
    load_weights(found, Path("run/checkpoints/final/model.safetensors"))
    assert torch.equal(weights(found), weights(model))


@pytest.mark.parametrize("stop", [3, 5])
def test_it_resumes_to_the_bit(stop):
    trainer(net(), callbacks=[StopAt(stop)]).fit()
    model = net()
    trainer(model).fit(resume="run")
    assert torch.equal(weights(model), weights(plain_loop()[1]))


def test_another_decay_is_refused_and_none_is_remarked_on():
    trainer(net(), callbacks=[StopAt(3)]).fit()
    with pytest.raises(RunFolderError, match=r"ema=0.8 and 6 parameters, and this run has ema=0.9 and 6"):
        trainer(net(), ema=0.9).fit(resume="run")
    model = net()
    trainer(model, ema=None).fit(resume="run")
    assert torch.equal(weights(model), weights(plain_loop()[0]))
    assert "this run has no ema" in Path("run/log.txt").read_text()


class BadAt(nn.Module):
    """A loss that is not finite at one step."""

    def __init__(self, step):
        super().__init__()
        self.step, self.calls = step, 0

    def forward(self, prediction, target):
        self.calls += 1
        return nn.functional.mse_loss(prediction, target) * (float("nan") if self.calls == self.step else 1.0)


def test_a_step_that_is_left_out_is_not_averaged():
    model = net()
    trainer(model, loss_fn=BadAt(4), on_nan="skip", sliceable=False).fit()
    torch.set_num_threads(1)
    _, expected = plain_loop(skipped=(4,))
    assert torch.allclose(weights(model), weights(expected), atol=1e-6)


def test_an_interrupted_run_leaves_the_weights_that_it_goes_on_with():
    class Signals(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            if step == 4:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        trainer(net(), callbacks=[Signals()]).fit()
    model = net()
    trainer(model).fit(resume="run")
    assert torch.equal(weights(model), weights(plain_loop()[1]))


def test_what_fails_while_the_average_is_in_place_leaves_the_weights():
    model = net()
    average = WeightAverage(model, 0.5)
    average.update(model)
    nn.init.zeros_(model[0].weight)
    average.update(model)
    before, kept = weights(model).clone(), weights(average.module).clone()
    with pytest.raises(RuntimeError), average.in_place(model):
        assert torch.equal(weights(model), kept)
        raise RuntimeError
    assert torch.equal(weights(model), before) and torch.equal(weights(average.module), kept)


@pytest.mark.parametrize("wrong", [0, 1, 1.5, -0.1, "a", True])
def test_a_decay_is_between_0_and_1(wrong):
    with pytest.raises(ConfigError, match="ema"):
        trainer(net(), ema=wrong)


def test_a_model_that_cannot_be_copied_is_refused():
    class NoCopy(nn.Linear):
        def __deepcopy__(self, memo):
            raise TypeError("no copies")

    with pytest.raises(ConfigError, match="needs a copy of the model, which cannot be made: no copies"):
        trainer(NoCopy(4, 1)).fit()


@pytest.mark.gpu
def test_a_captured_run_has_the_average_of_an_eager_one():
    found = []
    for capture in ("off", "require"):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
        settings = {
            "device": "cuda",
            "capture": capture,
            "run_dir": f"run-{capture}",
            "epochs": 20,
            "optimizer": "AdamW",
        }
        made = trainer(model, **settings, eval_data=[(X, Y)])
        metrics = made.fit().metrics
        assert capture == "off" or made.captured.replays > 10
        found.append((weights(model).cpu(), metrics["loss"]))
    assert torch.allclose(found[0][0], found[1][0], rtol=1e-5, atol=1e-6)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-5)


@pytest.mark.gpu
def test_the_host_does_not_wait_for_the_average():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)).cuda()
    average = WeightAverage(model, 0.5)
    average.update(model)  # the first one copies
    torch.cuda.set_sync_debug_mode("error")
    try:
        average.update(model)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(weights(average.module), weights(model))


class LiveBytes(TorchDispatchMode):
    """The most bytes that were alive at once of what was made meanwhile."""

    def __init__(self):
        super().__init__()
        self.most, self._alive = 0, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and "clone" in str(function):
            storage = result.untyped_storage()
            self._alive[storage._cdata] = (weakref.ref(storage), storage.nbytes())
            self.most = max(self.most, sum(size for ref, size in self._alive.values() if ref() is not None))
        return result


def test_weights_and_average_change_places_without_a_third_copy():
    model = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(4)))
    average = WeightAverage(model, 0.5)
    average.update(model)
    with LiveBytes() as seen, average.in_place(model):
        pass
    assert 0 < seen.most <= 2 * 4 * 64  # one of the four, and the next before it is gone


def test_weights_of_16_bits_are_kept_while_their_average_is_in_place():
    model = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(4))).bfloat16()
    average = WeightAverage(model, 0.5)
    average.update(model)
    nn.init.zeros_(model[0].weight)
    average.update(model)
    before, kept = weights(model).clone(), weights(average.module).clone()
    with LiveBytes() as seen, average.in_place(model):
        assert torch.equal(weights(model), kept.bfloat16())
    assert seen.most == 4 * 2 * 64
    assert torch.equal(weights(model), before) and torch.equal(weights(average.module), kept)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_memory_to_change_places_everything_is_as_it_was(dtype, monkeypatch):
    model = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(4))).to(dtype)
    average = WeightAverage(model, 0.5)
    average.update(model)
    nn.init.zeros_(model[0].weight)
    average.update(model)
    before, kept = weights(model).clone(), weights(average.module).clone()
    clone, calls = torch.Tensor.clone, []

    def run_out(tensor):
        calls.append(tensor)
        if len(calls) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return clone(tensor)

    monkeypatch.setattr(torch.Tensor, "clone", run_out)
    with pytest.raises(CannotFit, match="no memory to put averaged weights"), average.in_place(model):
        pass
    monkeypatch.undo()
    assert torch.equal(weights(model), before) and torch.equal(weights(average.module), kept)


class Asks(brim.Callback):
    """Evaluates and predicts by itself, beside the evaluations of the run."""

    def __init__(self):
        self.of_run, self.own, self.predicted, self.at_end = [], [], [], None

    def on_evaluate(self, trainer, metrics):
        before = weights(trainer.model).clone()
        self.of_run.append(metrics["loss"])
        self.own.append(trainer.evaluate((X, Y))["loss"])
        self.predicted.append(nn.functional.mse_loss(trainer.predict(X), Y).item())
        assert torch.equal(weights(trainer.model), before)

    def on_fit_end(self, trainer):
        self.at_end = trainer.evaluate((X, Y))["loss"]


def test_what_a_callback_evaluates_has_the_averaged_weights_as_the_run_has():
    asks = Asks()
    trained = trainer(net(), eval_data=(X, Y), callbacks=[asks])
    result = trained.fit()
    assert asks.own == asks.of_run and len(asks.own) == 3
    assert asks.predicted == pytest.approx(asks.own)
    assert asks.at_end == trained.evaluate((X, Y))["loss"] == pytest.approx(result.metrics["loss"])


def test_an_evaluation_within_an_evaluation_leaves_the_averaged_weights_in_place():
    model = nn.Linear(1, 1, bias=False)
    average = WeightAverage(model, 0.5)
    for value in (1.0, 2.0):
        nn.init.constant_(model.weight, value)
        average.update(model)
    with average.in_place(model), average.in_place(model):
        assert model.weight.item() == 1.5
    assert model.weight.item() == 2.0


def test_before_the_first_step_the_model_is_judged_by_its_own_weights():
    model = nn.Linear(1, 1, bias=False)
    average = WeightAverage(model, 0.5)
    nn.init.constant_(model.weight, 3.0)
    with average.in_place(model):
        assert model.weight.item() == 3.0
    average.copy_to(model)
    assert model.weight.item() == 3.0


class Looks:
    """An evaluator that looks at the averaged model during an evaluation."""

    monitor, higher_is_better = "loss", False

    def __init__(self):
        self.trainer, self.held, self.differences = None, None, []

    def evaluate(self, model):
        averaged = self.trainer.ema_model
        self.held = self.held or averaged
        looked = [copy.deepcopy(averaged), averaged, self.held, model]
        self.differences += [(weights(one) - weights(self.before)).abs().max().item() for one in looked]
        return {"loss": nn.functional.mse_loss(model(X.to(next(model.parameters()).dtype)).float(), Y).item()}


class KeepsCopy(brim.Callback):
    def __init__(self, looks):
        self.looks = looks

    def on_evaluate_start(self, trainer):
        self.looks.before = copy.deepcopy(trainer.ema_model)


def test_the_averaged_model_holds_the_average_during_an_evaluation_too():
    looks = Looks()
    looks.trainer = made = trainer(net(), eval_data=looks, callbacks=[KeepsCopy(looks)], eval_every="3 steps")
    made.fit()
    assert len(looks.differences) > 8 and set(looks.differences) == {0.0}
    undisturbed = trainer(net(), eval_data=(X, Y), eval_every="3 steps", run_dir="other")
    undisturbed.fit()
    assert torch.equal(weights(made.ema_model), weights(undisturbed.ema_model))


def test_of_shorter_weights_the_averaged_model_has_the_whole_average_during_an_evaluation():
    looks = Looks()
    settings = {"eval_data": looks, "callbacks": [KeepsCopy(looks)], "precision": "bf16-true"}
    looks.trainer = made = trainer(net(), **settings)
    made.fit()
    assert looks.differences[0::4] == looks.differences[1::4] == looks.differences[2::4] == [0.0] * 3
    assert max(looks.differences[3::4]) > 0  # rounded


class Bank(nn.Module):
    """A buffer that the first forward pass registers, one that it fills, and one that grows."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(4, 1)
        self.register_buffer("filled", None)
        self.register_buffer("bank", torch.zeros(0, 1))

    def forward(self, x):
        if not hasattr(self, "scale"):
            self.register_buffer("scale", x.std(0) + 1)
        self.filled = x.mean(0)
        y = self.layer(x / self.scale)
        self.bank = torch.cat([self.bank, y.detach()])
        return y


def average_by_hand(model, change=lambda model, epoch: None, epochs=3):
    """The average of each weight that the model has, by name, where ``change`` may tie and replace some."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    averages, optimizer = {}, torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(epochs):
        change(model, epoch)
        for x, y in brim.Loader((X, Y), batch_size=8).batches(0, epoch):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            for name, weight in model.named_parameters():
                average = averages.setdefault(name, weight.detach().clone())
                average.lerp_(weight.detach(), 1 - DECAY)
    return torch.cat([averages[name].flatten() for name, _ in model.named_parameters()])


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.02)


def parameters_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_buffers_that_forward_passes_register_fill_or_make_longer_are_the_model_s():
    model = Bank()
    made = trainer(model, optimizer=sgd, eval_data=[(X, Y)], restore_best=False)
    made.fit()
    assert torch.allclose(parameters_of(model), average_by_hand(Bank()), atol=1e-6)
    found = dict(made.ema_model.named_buffers())
    assert set(found) == {"filled", "bank", "scale"}


class Changes(brim.Callback):
    def __init__(self, change):
        self.change = change

    def on_epoch_start(self, trainer, epoch):
        self.change(trainer.model, epoch - 1)


def two_layers():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 4, bias=False), nn.Tanh(), nn.Linear(4, 4, bias=False), nn.Linear(4, 1))


def tie(model, epoch):
    if epoch == 1:
        model[2].weight = model[0].weight


def put_in(model, epoch):
    """Another head, which the optimizer does not hold."""
    if epoch == 1:
        torch.manual_seed(2)
        model[3] = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))


@pytest.mark.parametrize("change", [tie, put_in])
def test_weights_that_a_callback_ties_or_puts_in_are_averaged_under_their_names(change):
    model = two_layers()
    trainer(model, optimizer=sgd, callbacks=[Changes(change)], eval_data=[(X, Y)], restore_best=False).fit()
    assert torch.allclose(parameters_of(model), average_by_hand(two_layers(), change), atol=1e-6)


@pytest.mark.parametrize("first", [True, False])
def test_whole_numbers_are_those_of_now_since_they_have_no_mean(first):
    class Coded(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = None if first else nn.Linear(4, 1)
            self.codes = nn.Parameter(torch.tensor([3, -7, 2]), requires_grad=False)
            self.mask = nn.Parameter(torch.tensor([True, False]), requires_grad=False)
            self.out = nn.Linear(4, 1)

        def forward(self, x):
            return self.out(x)

    model = Coded()
    trainer(model, ema=0.9).fit()
    assert model.codes.tolist() == [3, -7, 2] and model.mask.tolist() == [True, False]
