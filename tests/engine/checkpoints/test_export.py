"""The command is tested in tests/cli/test_checkpoint.py."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import brim
from brim.engine.checkpoints.export import export_weights
from brim.errors import ConfigError, RunFolderError


@pytest.fixture
def run(tmp_path):
    model = nn.Linear(2, 1)
    data = brim.Loader((torch.randn(16, 2), torch.randn(16, 1)), 4)
    brim.Trainer(model, data, loss_fn=nn.MSELoss(), device="cpu", threads=1, run_dir=tmp_path / "run").fit()
    return tmp_path / "run", model


def test_the_weights_of_a_run_are_one_file_beside_its_checkpoints(run):
    folder, model = run
    target, source = export_weights(folder)
    assert target == folder / "model.safetensors" and source.parent == folder / "checkpoints"
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in load_file(target).items())
    assert not list(folder.glob(".*.tmp"))


def test_the_weights_of_one_checkpoint_go_where_they_are_asked_for(run, tmp_path):
    folder, _ = run
    checkpoint = next((folder / "checkpoints").glob("step-*"))
    target, source = export_weights(checkpoint, tmp_path / "new" / "folder" / "w.safetensors")
    assert source == checkpoint and target.exists()
    assert export_weights(checkpoint)[0] == folder / "model.safetensors"


def test_another_ending_and_a_damaged_checkpoint_are_refused(run, tmp_path):
    folder, _ = run
    with pytest.raises(ConfigError, match=r"must end in \.safetensors"):
        export_weights(folder, tmp_path / "model.pth")
    checkpoint = next((folder / "checkpoints").glob("step-*"))
    (checkpoint / "model.safetensors").write_bytes(b"x")
    with pytest.raises(RunFolderError, match="is damaged"):
        export_weights(checkpoint)
    assert not (folder / "model.safetensors").exists()


def test_a_run_without_a_checkpoint_is_refused(run):
    folder, _ = run
    (folder / "checkpoints").rename(folder / "gone")
    (folder / "checkpoints").mkdir()
    with pytest.raises(RunFolderError, match="holds no whole checkpoint"):
        export_weights(folder)


def test_within_a_checkpoint_the_run_is_found_and_the_checkpoint_stays_as_it_is(run, monkeypatch):
    folder, _ = run
    checkpoint = next((folder / "checkpoints").glob("step-*"))
    monkeypatch.chdir(checkpoint)
    assert export_weights(Path())[0] == folder / "model.safetensors"
