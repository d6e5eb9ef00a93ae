import pytest
import torch

from brim.cli.observe.configured_training import is_configuration, script_for
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
