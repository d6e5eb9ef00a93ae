"""One batch of everything, and no trace of it."""

import threading
from pathlib import Path

import pytest
import torch
from torch import nn

import brim
from brim.data import as_feed
from brim.engine.control.dry_run import FirstBatches
from brim.errors import ConfigError

pytestmark = pytest.mark.usefixtures("own_folder")

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)


class Watches(brim.Callback):
    def __init__(self):
        self.seen = []

    def on_step_end(self, trainer, step, loss):
        self.seen.append("step")

    def on_evaluate(self, trainer, metrics):
        self.seen.append("evaluate")

    def on_epoch_end(self, trainer, epoch):
        self.seen.append("epoch")


class Counted(torch.utils.data.Dataset):
    def __init__(self):
        self.read = 0

    def __len__(self):
        return 40

    def __getitem__(self, index):
        self.read += 1
        return X[index], Y[index]


@pytest.mark.parametrize("accumulated", [1, 2])
def test_one_batch_of_everything_and_nothing_is_left(accumulated):
    model, watches = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), Watches()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    held_out, test = Counted(), Counted()
    batches = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 40, 8)]
    made = brim.Trainer(
        model, batches, torch.utils.data.DataLoader(held_out, 8), torch.utils.data.DataLoader(test, 8),
        loss_fn=nn.MSELoss(), device="cpu", threads=1, epochs=50, patience=3, optimizer=optimizer, callbacks=[watches],
        fast_dev_run=True, gradient_accumulation_steps=accumulated, run_dir="run",
    )  # fmt: skip
    result = made.fit(save_model=True)
    assert watches.seen == ["step", "evaluate", "epoch"]
    assert (result.steps, result.epochs) == (1, 1) and set(result.metrics) == {"loss"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not optimizer.state and list(Path().iterdir()) == [] and not result.run.exists()


class MakesBuffers(nn.Linear):
    """Its forward pass fills, enlarges and registers buffers."""

    def __init__(self):
        super().__init__(4, 1)
        self.register_buffer("filled", None)
        self.register_buffer("longer", torch.ones(1))
        self.register_buffer("unsaved", torch.zeros(1), persistent=False)

    def forward(self, x):
        self.filled, self.longer = x.mean(), x.mean(0)
        self.register_buffer("registered", x.mean())
        self.unsaved += 1
        return super().forward(x)


def test_buffers_that_a_forward_pass_has_made_are_gone():
    model = MakesBuffers()
    brim.Trainer(model, [(X, Y)], loss_fn=nn.MSELoss(), device="cpu", threads=1, fast_dev_run=True).fit()
    assert model.filled is None and model.longer.tolist() == [1] and not hasattr(model, "registered")
    assert model.unsaved.tolist() == [0]


class SharesBuffers(nn.Linear):
    """Two parts hold one buffer, and a third becomes a part of the batch."""

    def __init__(self):
        super().__init__(4, 1)
        counted = torch.zeros(1)
        self.parts = nn.ModuleList(nn.Identity() for _ in range(2))
        for part in self.parts:
            part.register_buffer("counted", counted, persistent=False)
        self.register_buffer("last", torch.zeros(40, 4), persistent=False)
        self.register_buffer("wide", torch.zeros(1).expand(3), persistent=False)

    def forward(self, x):
        self.parts[0].counted += 1
        self.last = x
        return super().forward(x) * (1 + self.parts[1].counted)


def test_a_buffer_that_several_parts_hold_is_still_one_and_a_batch_is_not_written_to():
    model, x = SharesBuffers(), X.clone()
    brim.Trainer(model, [(x, Y)], loss_fn=nn.MSELoss(), device="cpu", threads=1, fast_dev_run=True).fit()
    assert model.parts[0].counted is model.parts[1].counted and model.parts[0].counted.tolist() == [0]
    assert not model.last.any() and model.wide.tolist() == [0, 0, 0] and torch.equal(x, X)


def test_an_error_leaves_nothing_either():
    model = nn.Linear(4, 1)
    before = model.weight.clone()
    with pytest.raises(brim.BrimError):
        brim.Trainer(model, [(X, Y)], [(X[:, :3], Y)], loss_fn=nn.MSELoss(), device="cpu", fast_dev_run=True).fit()
    assert torch.equal(model.weight, before) and list(Path().iterdir()) == []


@pytest.mark.parametrize("had", [False, True])
def test_gradients_and_generators_are_as_before(had):
    model = nn.Linear(4, 1)
    scale = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([*model.parameters(), scale], lr=0.1)
    if had:
        (scale * nn.functional.mse_loss(model(X), Y)).backward()
    before = [None if p.grad is None else p.grad.clone() for p in (*model.parameters(), scale)]
    own, drawn = torch.Generator().manual_seed(3), torch.Generator().manual_seed(4)
    data = torch.utils.data.TensorDataset(X, Y)
    sets = {"a": torch.utils.data.DataLoader(data, 8, generator=drawn), "b": (X, Y)}
    states = own.get_state(), drawn.get_state()
    brim.Trainer(
        model, torch.utils.data.DataLoader(data, 8, shuffle=True, generator=own), sets, optimizer=optimizer,
        loss_fn=lambda model, batch: nn.functional.mse_loss(model(batch[0]) * scale, batch[1]), device="cpu",
        fast_dev_run=True, threads=1,
    ).fit()  # fmt: skip
    for parameter, gradient in zip((*model.parameters(), scale), before, strict=True):
        assert torch.equal(parameter.grad, gradient) if had else parameter.grad is None
    assert torch.equal(own.get_state(), states[0]) and torch.equal(drawn.get_state(), states[1])


@pytest.mark.parametrize("by_function", [False, True])
def test_what_a_loss_keeps_and_trains_by_itself_is_as_before(by_function):
    model, weight, centre, past = nn.Linear(4, 1), nn.Parameter(torch.ones(1)), torch.zeros(1), []
    average = 0.0

    def loss(model, batch):
        nonlocal average, centre
        found = nn.functional.mse_loss(model(batch[0]), batch[1])
        average, centre = average + found.item(), centre + batch[0].mean()
        past.append(average)
        return found * weight.exp().sum()

    def made(parameters):
        return torch.optim.Adam([*parameters, weight], lr=0.1)

    optimizer = made if by_function else made(model.parameters())
    brim.Trainer(
        model, [(X, Y)], loss_fn=loss, device="cpu", threads=1, optimizer=optimizer, fast_dev_run=True, loggers=[]
    ).fit()
    assert (average, float(centre), past, weight.item()) == (0.0, 0.0, [], 1.0)


def test_parameters_of_an_optimizer_that_are_not_found_in_the_loss_are_as_before():
    model, hidden = nn.Linear(4, 1), threading.local()
    hidden.weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.Adam([*model.parameters(), hidden.weight], lr=0.1)

    def loss(model, batch):
        return nn.functional.mse_loss(model(batch[0]), batch[1]) * hidden.weight.exp().sum()

    brim.Trainer(
        model, [(X, Y)], loss_fn=loss, device="cpu", threads=1, optimizer=optimizer, fast_dev_run=True, loggers=[]
    ).fit()
    assert hidden.weight.item() == 1.0


def test_what_cannot_be_put_back_is_told(capsys):
    numbers = (number for number in range(100))

    def loss(model, batch):
        return nn.functional.mse_loss(model(batch[0]), batch[1]) * (1 + next(numbers))

    brim.Trainer(nn.Linear(4, 1), [(X, Y)], loss_fn=loss, device="cpu", threads=1, fast_dev_run=True, loggers=[]).fit()
    assert "what the loss keeps in Python may not be: it holds a generator" in capsys.readouterr().err


def test_classes_of_optimizers_have_no_state_to_put_back():
    model = nn.Linear(4, 1)
    before = model.weight.clone()
    brim.Trainer(
        model, [(X, Y)], loss_fn=nn.MSELoss(), device="cpu", fast_dev_run=True, optimizer=torch.optim.Adam,
        threads=1,
    ).fit()  # fmt: skip
    assert torch.equal(model.weight, before) and model.weight.grad is None


@pytest.mark.parametrize("classes", [{"scheduler": torch.optim.lr_scheduler.ConstantLR}, {"loss_fn": nn.MSELoss}])
def test_other_classes_are_answered_as_in_a_real_run(classes):
    said = []
    for dry in (True, False):
        settings = {"loss_fn": nn.MSELoss(), "device": "cpu", "threads": 1, "fast_dev_run": dry, **classes}
        try:
            brim.Trainer(nn.Linear(4, 1), [(X, Y)], **settings).fit()
            said.append("")
        except brim.BrimError as error:
            said.append(str(error))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("settings", "given", "match"),
    [
        ({"patience": 2}, {}, "there is no eval_data"),
        ({}, {"save_model": (X, Y)}, "takes no model and no data"),
        ({}, {"save_model": True, "model_path": "a_file/model.pth"}, "is not a folder"),
    ],
)
def test_what_a_real_run_refuses_is_refused(settings, given, match):
    Path("a_file").touch()
    made = brim.Trainer(nn.Linear(4, 1), [(X, Y)], loss_fn=nn.MSELoss(), device="cpu", fast_dev_run=True, **settings)
    with pytest.raises(ConfigError, match=match):
        made.fit(**given)


def test_a_dry_run_resumes_nothing():
    with pytest.raises(ConfigError, match="leave resume out"):
        brim.Trainer(nn.Linear(4, 1), [(X, Y)], loss_fn=nn.MSELoss(), device="cpu", fast_dev_run=True).fit(resume="a")


def test_first_batches_are_those_of_the_data():
    feed = FirstBatches(as_feed([(X[:8],), (X[8:16],), (X[16:],)]), 2)
    assert len(feed) == 2 and torch.equal(torch.cat([x for (x,) in feed.in_order()]), X[:16])
