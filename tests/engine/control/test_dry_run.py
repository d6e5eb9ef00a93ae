"""One batch of everything, and no trace of it."""

from pathlib import Path

import pytest
import torch
from torch import nn

import brim
from brim.data import as_feed
from brim.engine.control.dry_run import FirstBatches
from brim.errors import ConfigError

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


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


def test_an_error_leaves_nothing_either():
    model = nn.Linear(4, 1)
    before = model.weight.clone()
    with pytest.raises(brim.BrimError):
        brim.Trainer(model, [(X, Y)], [(X[:, :3], Y)], loss_fn=nn.MSELoss(), device="cpu", fast_dev_run=True).fit()
    assert torch.equal(model.weight, before) and list(Path().iterdir()) == []


def test_a_dry_run_resumes_nothing():
    with pytest.raises(ConfigError, match="leave resume out"):
        brim.Trainer(nn.Linear(4, 1), [(X, Y)], loss_fn=nn.MSELoss(), device="cpu", fast_dev_run=True).fit(resume="a")


def test_first_batches_are_those_of_the_data():
    feed = FirstBatches(as_feed([(X[:8],), (X[8:16],), (X[16:],)]), 2)
    assert len(feed) == 2 and torch.equal(torch.cat([x for (x,) in feed.in_order()]), X[:16])
