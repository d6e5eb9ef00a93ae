"""What a run changes beside the model goes on with it: buffers of the loss, parameters that the optimizer knows."""

import functools

import pytest
import torch
import torch.nn.functional as F
from helpers.weights import weights
from torch import nn

import brim
from brim.engine.components.loss_modules import modules_of
from brim.engine.run_state.beside_model import BesideModel
from brim.errors import ConfigError

pytestmark = pytest.mark.usefixtures("own_folder")

torch.manual_seed(0)
X = torch.randn(40, 4)
Y = X.sin().sum(1, keepdim=True)


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(4, 1)


class Centre(nn.Module):
    """A criterion whose buffer follows the outputs."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(1))

    def forward(self, input, target):
        self.centre.lerp_(input.detach().mean().reshape(1) + 1, 0.1)
        return F.mse_loss(input - self.centre, target)


class LateCentre(nn.Module):
    """Its buffer is none until the first batch."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centre", None)

    def forward(self, input, target):
        now = input.detach().mean() + 1
        self.centre = now if self.centre is None else self.centre.lerp(now, 0.1)
        return F.mse_loss(input - self.centre, target)


class Counting(nn.Module):
    """Keeps a number beside its tensors."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, input, target):
        self.calls += 1
        return F.mse_loss(input, target) / self.calls

    def get_extra_state(self):
        return {"calls": self.calls}

    def set_extra_state(self, state):
        self.calls = state["calls"]


class Follower(nn.Module):
    """A teacher that follows the model, written through .data, which leaves no mark on its version."""

    def __init__(self, width=4):
        super().__init__()
        self.teacher = nn.Linear(width, 1).requires_grad_(False)
        nn.init.zeros_(self.teacher.weight)
        nn.init.zeros_(self.teacher.bias)

    def loss(self, model, batch):
        self.teacher.weight.data.lerp_(model.weight.data, 0.1)
        return F.mse_loss(model(batch[0]), batch[1] + self.teacher(batch[0]))


class Task:
    """An object of the user's that holds a criterion among other things."""

    def __init__(self, criterion):
        self.parts = {"criterion": criterion, "name": "task"}

    def __call__(self, model, batch):
        return self.parts["criterion"](model(batch[0]), batch[1])

    def loss(self, model, batch):
        return self(model, batch)


def in_closure(criterion):
    return lambda model, batch: criterion(model(batch[0]), batch[1])


def with_argument(model, batch, criterion):
    return criterion(model(batch[0]), batch[1])


def make_loss(kind):
    if kind == "follower":
        return Follower().loss
    forms = {
        "module": lambda: Centre(),
        "none at first": lambda: LateCentre(),
        "extra state": lambda: Counting(),
        "closure": lambda: in_closure(Centre()),
        "partial": lambda: functools.partial(with_argument, criterion=Centre()),
        "object": lambda: Task(Centre()),
        "method": lambda: Task(Centre()).loss,
    }
    return forms[kind]()


def run(folder, loss_fn, stop_at=None, resume=None, optimizer=None, **settings):
    class Stop(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            if step == stop_at:
                trainer.stop("for a while")

    model = net()
    made = (lambda p: torch.optim.SGD(p, lr=0.05)) if optimizer is None else optimizer(model)
    brim.Trainer(
        model, brim.Loader((X, Y), batch_size=8), loss_fn=loss_fn, optimizer=made, device="cpu", threads=1, epochs=3,
        run_dir=folder, callbacks=[Stop()], **settings,
    ).fit(resume=resume)  # fmt: skip
    return weights(model)


@pytest.mark.matrix(4)
@pytest.mark.parametrize("stop_at", [5, 7])
@pytest.mark.parametrize(
    "kind", ["module", "none at first", "extra state", "closure", "partial", "object", "method", "follower"]
)
def test_what_the_loss_keeps_goes_on_with_a_resumed_run(kind, stop_at):
    whole = run("whole", make_loss(kind))
    run("run", make_loss(kind), stop_at)
    assert torch.equal(run("run", make_loss(kind), resume="run"), whole)


@pytest.mark.parametrize("stop_at", [5, 7])
def test_a_parameter_that_only_the_optimizer_knows_goes_on_with_a_resumed_run(stop_at):
    def train(folder, stop_at=None, resume=None):
        temperature = nn.Parameter(torch.zeros(()))

        def loss(model, batch):
            return F.mse_loss(model(batch[0]), batch[1]) * torch.exp(-temperature) + temperature

        def optimizer(model):
            return torch.optim.Adam([{"params": [temperature], "lr": 0.1}, {"params": model.parameters()}], lr=0.05)

        return run(folder, loss, stop_at, resume, optimizer), temperature.detach()

    whole = train("whole")
    train("run", stop_at)
    assert all(torch.equal(a, b) for a, b in zip(train("run", resume="run"), whole, strict=True))


def test_a_checkpoint_of_an_earlier_version_has_none_of_it_and_is_loaded(tmp_path):
    run("run", Centre(), stop_at=5)
    (path,) = (tmp_path / "run" / "checkpoints").glob("step-*")
    saved = torch.load(path / "training.pt", weights_only=True)
    for name in ("beside", "schedule", "trained", "trained_at_starts", "parameter_names"):
        del saved[name]
    torch.save(saved, path / "training.pt")
    (path / "checksums.json").unlink()
    assert torch.isfinite(run("run", Centre(), resume="run")).all()


def test_a_large_tensor_that_never_moves_is_not_saved_again_and_again():
    class Perceptual(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Linear(1024, 1024).requires_grad_(False)
            self.register_buffer("mean", torch.zeros(1))

    criterion, model = Perceptual(), net()
    beside = BesideModel.of([model], criterion, torch.optim.SGD(model.parameters(), lr=0.1))
    assert list(beside.state()["modules"]["loss_fn"]) == ["mean", "features.bias"]
    criterion.features.weight.data.mul_(0.5)
    assert "features.weight" in beside.state()["modules"]["loss_fn"]
    criterion.features.weight.data.mul_(2.0)
    assert "features.weight" in beside.state()["modules"]["loss_fn"]


def test_one_number_of_a_large_tensor_that_moves_unseen_by_versions_is_enough():
    criterion, model = nn.Sequential(nn.Linear(1024, 1024)).requires_grad_(False), net()
    criterion.forward = lambda x: x
    beside = BesideModel.of([model], criterion, torch.optim.SGD(model.parameters(), lr=0.1))
    assert "0.weight" not in beside.state()["modules"]["loss_fn"]
    criterion[0].weight.data[17, 331] += 1
    assert "0.weight" in beside.state()["modules"]["loss_fn"]


def test_the_model_itself_is_not_a_part_of_its_loss():
    model, teacher = net(), net(1)

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = model, teacher

        def loss(self, model, batch):
            return self.student(batch[0]).mean()

    assert list(modules_of(lambda m, b: model(b[0]) + teacher(b[0]), model)) == ["loss_fn.teacher"]
    whole = Whole()
    beside = BesideModel.of([model], whole.loss, torch.optim.SGD(model.parameters(), lr=0.1))
    (state,) = beside.state()["modules"].values()
    assert list(state) == ["teacher.weight", "teacher.bias"]


def test_extra_state_of_a_loss_that_cannot_be_saved_is_refused_before_anything_is_written(tmp_path):
    class Odd(Counting):
        def get_extra_state(self):
            return object()

    with pytest.raises(ConfigError, match="get_extra_state of loss_fn: Odd"):
        run("run", Odd())
    assert not (tmp_path / "run").exists()


def test_a_loss_that_has_no_place_for_what_was_saved_is_worth_a_warning(capsys):
    run("run", Centre(), stop_at=5)
    run("run", nn.functional.mse_loss, resume="run")
    assert "state of loss_fn, which this run's loss does not have" in " ".join(capsys.readouterr().err.split())
