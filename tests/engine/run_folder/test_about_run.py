"""What a run folder says of the run: what was trained, with what, on what, by which code."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import brim
from brim.engine.run_folder import about_run
from brim.engine.run_folder.about_run import commit_of, show_batch, show_optimizer, size_of, size_of_sets
from brim.engine.trainer import run_now

X = torch.randn(40, 4)
Y = X.sum(1, keepdim=True)


def test_the_folder_of_a_run_says_what_it_is_about(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--name", "a b"])
    model = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    brim.Trainer(
        model, brim.Loader((X, Y), batch_size=8), (X, Y), loss_fn=nn.MSELoss(), device="cpu", run_dir=tmp_path / "run",
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.07, momentum=0.9), gradient_accumulation_steps=2,
    ).fit()  # fmt: skip
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    assert about["model"] == "Sequential"
    assert about["parameters"] == "13, of which 3 are trained"
    assert about["optimizer"] == "SGD, lr 0.07, momentum 0.9"
    assert about["batch"] == "16 (2 x 8)"
    assert (about["training_data"], about["evaluation_data"]) == ("40 samples", "40 samples")
    assert "test_data" not in about
    assert about["brim"] == brim.__version__
    assert about["command"] == "train.py --name 'a b'"


def test_a_run_that_is_killed_has_a_page(tmp_path):
    class Kill(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            page = (run_now(trainer).log.file, (tmp_path / "run" / "report.html").read_text())
            assert "Sequential" in page[1]
            trainer.stop("seen")

    brim.Trainer(
        nn.Sequential(nn.Linear(4, 1)), (X, Y), loss_fn=nn.MSELoss(), device="cpu", run_dir=tmp_path / "run",
        callbacks=[Kill()],
    ).fit()  # fmt: skip


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (DataLoader(TensorDataset(X, Y), batch_size=8), "40 samples"),
        (TensorDataset(X, Y), "40 samples"),
        (brim.Loader((X, Y), batch_size=8), "40 samples"),
        ((X, Y), "40 samples"),
        ([(X, Y)] * 3, "3 batches"),
        (iter([(X, Y)]), ""),
        ({"x": X, "y": Y}, "40 samples"),
        (((X, X), Y), "40 samples"),
    ],
)
def test_how_much_data_there_is(data, said):
    assert size_of(data) == said


def test_each_of_several_sets_has_its_size():
    sets = {"near": (X, Y), "far": {"x": X[:3]}, "odd": iter([])}
    assert size_of_sets(sets) == "near: 40 samples, far: 3 samples"
    assert size_of_sets({"x": X, "y": Y}) == size_of_sets((X, Y)) == "40 samples"


def test_ready_batches_come_as_they_are():
    assert show_batch(None, 1, 1) == "as the data comes"
    assert show_batch(None, 4, 1) == "as the data comes, 4 accumulated"
    assert show_batch(brim.Loader((X, Y), batch_size=8), 1, 2) == "8, shared by 2 ranks"


def test_groups_are_counted():
    groups = [{"params": [nn.Parameter(X)], "lr": 0.1}, {"params": [nn.Parameter(Y)], "lr": 0.2}]
    assert show_optimizer(torch.optim.Adam(groups)) == "Adam, lr 0.1, betas (0.9, 0.999), 2 parameter groups"


def test_the_commit_and_whether_the_code_was_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(about_run, "GIT_SECONDS", 600.0)  # however busy the machine is
    assert commit_of(tmp_path) == ""

    def git(*words):
        options = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *options, *words], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)

    git("init")
    (tmp_path / "a.py").write_text("1")
    git("add", "a.py")
    git("commit", "-m", "one")
    commit = commit_of(tmp_path)
    assert commit and "changes" not in commit
    (tmp_path / "a.py").write_text("2")
    assert commit_of(tmp_path) == f"{commit} with changes"
