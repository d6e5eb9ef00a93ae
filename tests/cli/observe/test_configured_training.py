import pytest
import torch

from brim.cli.observe.configured_training import is_configuration, script_for, script_for_module
from brim.doctor.child_process import watch_script
from brim.doctor.diagnosis import checked, diagnosis
from brim.doctor.order import Order
from brim.errors import ConfigError

TINY = ["model.name=bpr", "model.embed_dim=4", "trainer.device=cpu"]


def test_yaml_files_and_settings_are_configurations():
    assert is_configuration("my.yml") and is_configuration("model.name=bpr") and not is_configuration("train.py")


def test_a_wrong_configuration_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no configuration file none\.yaml"):
        script_for("none.yaml", [], tmp_path)
    with pytest.raises(ConfigError, match="model"):
        script_for("model.nam=bpr", [], tmp_path)


@pytest.mark.slow
def test_a_module_is_run_as_python_would_run_it(tmp_path, monkeypatch):
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    (home / "project" / "parts.py").write_text("import torch\nmodel = torch.nn.Linear(2, 1)\n")
    (home / "project" / "train.py").write_text(
        "import sys, torch\nfrom .parts import model\nassert sys.argv[1:] == ['--fast']\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "while True:\n    model(torch.ones(1, 2)).sum().backward()\n    optimizer.step()\n"
    )
    monkeypatch.chdir(home)
    script = script_for_module("project.train", tmp_path)
    seen = checked(watch_script(Order(str(script), ("--fast",), pace=0.02), 600.0, lambda _: None))
    assert seen.ended == "measured" and str(home / "project" / "train.py") in seen.files


@pytest.mark.slow
def test_a_configured_training_is_watched_and_leaves_nothing(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    script = script_for(TINY[0], TINY[1:], tmp_path)
    seen = checked(watch_script(Order(str(script), pace=0.02), 600.0, lambda _: None))
    found = diagnosis(seen)
    assert seen.ended == "measured" and seen.timed.samples > 0 and seen.timed.data > 0
    assert not found.is_estimated and sum(found.shares.as_dict().values()) == pytest.approx(1)
    assert not any("configured_training" in line.line for line in seen.lines)
    assert list(home.iterdir()) == []


@pytest.mark.gpu
def test_steps_that_are_captured_are_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert torch.cuda.is_available()
    script = script_for(TINY[0], ["model.embed_dim=16", "trainer.device=cuda", "trainer.capture=require"], tmp_path)
    seen = checked(watch_script(Order(str(script), pace=0.2), 600.0, lambda _: None))
    assert seen.ended == "measured" and seen.timed.steps >= 10 and seen.host.device == "cuda"
