from pathlib import Path

import pytest
import torch
from torch import nn

import brim
from brim.errors import BadNumbers
from brim.record import RunFolder
from brim.record.failed_start import remove_failed_start

pytestmark = pytest.mark.usefixtures("own_folder")

X, Y = torch.randn(8, 3), torch.randn(8, 1)


def fit(loss_fn, **changes):
    data = brim.Loader((X, Y), 4)
    brim.Trainer(nn.Linear(3, 1), data, loss_fn=loss_fn, device="cpu", threads=1, **changes).fit()


def broken(model, batch):
    raise ValueError("not this way")


class BreaksLater:
    def __init__(self):
        self.calls = 0

    def __call__(self, model, batch):
        self.calls += 1
        if self.calls > 1:
            raise ValueError("not this way")
        return model(batch[0]).square().mean()


@pytest.mark.parametrize("run_dir", [None, "a/run"])
def test_a_run_whose_first_step_fails_leaves_no_folder(tmp_path, run_dir):
    with pytest.raises(ValueError, match="not this way"):
        fit(broken, run_dir=run_dir)
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "a/run").exists()


def test_other_runs_stay(tmp_path):
    fit(nn.MSELoss())
    with pytest.raises(ValueError):
        fit(broken)
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_run_that_fails_later_keeps_its_folder(tmp_path):
    with pytest.raises(ValueError):
        fit(BreaksLater(), sliceable=False, run_dir="run")
    assert "not this way" in (tmp_path / "run/log.txt").read_text()


def test_a_folder_that_was_there_before_stays(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(ValueError):
        fit(broken, run_dir="run")
    assert (tmp_path / "run").is_dir()


def test_the_batch_of_bad_numbers_is_kept(tmp_path):
    with pytest.raises(BadNumbers):
        fit(lambda model, batch: model(batch[0]).mean() * float("nan"), run_dir="run")
    assert [file.name for file in (tmp_path / "run/bad-batches").iterdir()] == ["step-000000001.safetensors"]


def test_what_a_callback_wrote_is_kept(tmp_path):
    class Writes(brim.Callback):
        def on_fit_start(self, trainer):
            Path("run/notes.txt").write_text("mine")

    with pytest.raises(ValueError):
        fit(broken, run_dir="run", callbacks=[Writes()])
    assert (tmp_path / "run/notes.txt").read_text() == "mine"


def test_a_resumed_run_keeps_its_folder(tmp_path):
    fit(nn.MSELoss(), run_dir="run")
    with pytest.raises(ValueError):
        brim.Trainer(nn.Linear(3, 1), (X, Y), loss_fn=broken, device="cpu", epochs=2, run_dir="run").fit(resume="auto")
    assert (tmp_path / "run/checkpoints").is_dir()


def test_ctrl_c_in_the_first_step_is_no_failed_start(tmp_path):
    def pressed(model, batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(pressed, sliceable=False, run_dir="run")
    assert (tmp_path / "run").is_dir()


@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoints/step-1", "model.pt"])
def test_a_folder_with_numbers_weights_or_other_files_stays(tmp_path, name):
    folder = RunFolder.create("run")
    (folder.path / name).write_text("{}")
    assert not remove_failed_start(folder)
    assert (folder.path / name).exists()


def test_a_bare_folder_is_removed_and_one_that_was_opened_is_not():
    folder = RunFolder.create("run")
    assert not remove_failed_start(RunFolder.open("run"))
    assert remove_failed_start(folder)
    assert not folder.path.exists()
