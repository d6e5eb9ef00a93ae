"""``brim checkpoint export``: one file with the weights that were asked for, or one sentence."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

import brim
from brim.cli.main import app
from brim.engine.checkpoints.export import export_weights
from brim.errors import ConfigError, RunFolderError


@pytest.fixture
def run(tmp_path):
    """A run whose best weights are not its last."""
    x, y = torch.randn(64, 4), torch.randn(64, 1)

    class Worsen(brim.Callback):
        def on_evaluate(self, trainer, metrics):
            with torch.no_grad():
                trainer.model.weight.add_(1.0)

    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    brim.Trainer(
        model, (x, y), (x, y), loss_fn=nn.MSELoss(), device="cpu", threads=1, epochs=3, callbacks=[Worsen()],
        run_dir=tmp_path / "run",
    ).fit()  # fmt: skip
    return tmp_path / "run", model


def test_the_best_weights_are_written(run):
    folder, model = run
    found = CliRunner().invoke(app, ["checkpoint", "export", str(folder)])
    assert found.exit_code == 0, found.output
    assert torch.equal(load_file(folder / "model.safetensors")["weight"], model.weight)


def test_the_last_ones_and_those_of_a_checkpoint_by_name(run, tmp_path):
    folder, model = run
    last, source = export_weights(folder, tmp_path / "a" / "last.safetensors", last=True)
    assert source.name.startswith("step-")
    assert not torch.equal(load_file(last)["weight"], model.weight)
    named, _ = export_weights(source)
    assert named == folder / "model.safetensors"
    assert torch.equal(load_file(named)["weight"], load_file(last)["weight"])


def test_damaged_ones_are_not_written(run, tmp_path):
    folder, _ = run
    weights = folder / "checkpoints" / "best" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    with pytest.raises(RunFolderError, match="is damaged"):
        export_weights(folder)
    assert not (folder / "model.safetensors").exists()


def test_what_cannot_be_is_one_sentence(run, tmp_path):
    folder, _ = run
    with pytest.raises(ConfigError, match=r"must end in \.safetensors"):
        export_weights(folder, tmp_path / "model.pt")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="choose another place"):
        export_weights(folder, tmp_path / "file" / "model.safetensors")
    found = CliRunner().invoke(app, ["checkpoint", "export", str(tmp_path / "missing")])
    assert found.exit_code == 2


def test_a_second_export_is_of_the_run_and_not_of_the_first_one(run):
    folder, model = run
    export_weights(folder, last=True)
    again, source = export_weights(folder)
    assert again == folder / "model.safetensors" and source.name == "best"
    assert torch.equal(load_file(again)["weight"], model.weight)
