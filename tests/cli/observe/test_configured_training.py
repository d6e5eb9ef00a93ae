import runpy
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from brim.cli.observe.configured_training import is_configuration, script_for, script_for_module, train_configured
from brim.doctor.child_process import watch_script
from brim.doctor.diagnosis import checked, diagnosis
from brim.doctor.order import Order
from brim.engine.captured import CapturedStep
from brim.errors import ConfigError

TINY = ["model.name=bpr", "model.embed_dim=4", "trainer.device=cpu"]


def test_yaml_files_and_settings_are_configurations():
    assert is_configuration("my.yml") and is_configuration("model.name=bpr") and not is_configuration("train.py")


def test_a_wrong_configuration_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no configuration file none\.yaml"):
        script_for("none.yaml", [], tmp_path)
    with pytest.raises(ConfigError, match="model"):
        script_for("model.nam=bpr", [], tmp_path)


def test_scripts_say_what_is_to_be_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "my.yaml").write_text("trainer: {device: cpu}\n")
    script = script_for(str(tmp_path / "my.yaml"), ["model.name=bpr"], tmp_path)
    assert f"train_configured({str(tmp_path / 'my.yaml')!r}, ['model.name=bpr'])" in script.read_text()
    home = tmp_path / "home"
    home.mkdir()
    (home / "told.py").write_text("import sys\nprint(__name__, sys.argv[1:], sys.path[0])")
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(sys, "argv", ["told", "--fast"])
    runpy.run_path(str(script_for_module("told", tmp_path)))
    assert capsys.readouterr().out == f"__main__ ['--fast'] {home}\n"


def test_a_configured_training_has_no_end_and_leaves_no_checkpoints(monkeypatch):
    built = []
    workload = SimpleNamespace(build_trainer=lambda **changed: SimpleNamespace(fit=lambda: built.append(changed)))
    monkeypatch.setattr("brim.config.workload.open_workload", lambda config: built.append(config) or workload)
    monkeypatch.setattr(CapturedStep, "__call__", lambda self, *arguments: arguments)
    train_configured(None, TINY)
    config, changed = built
    assert config.trainer.device == "cpu"
    assert changed == {"epochs": 10_000, "max_steps": None, "patience": None, "checkpoint_every": 10**9}
    steps = []
    handle = register_optimizer_step_post_hook(lambda *_: steps.append(1))  # what the doctor counts by
    try:
        assert CapturedStep.__call__(None, "a", "b") == ("a", "b") and len(steps) == 1
    finally:
        handle.remove()


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
    assert found.seen.ceiling is not None and sum(found.shares.as_dict().values()) == pytest.approx(1)
    assert not any("configured_training" in line.line for line in seen.lines)
    assert list(home.iterdir()) == []


@pytest.mark.gpu
def test_steps_that_are_captured_are_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert torch.cuda.is_available()
    script = script_for(TINY[0], ["model.embed_dim=16", "trainer.device=cuda", "trainer.capture=require"], tmp_path)
    seen = checked(watch_script(Order(str(script), pace=0.2), 600.0, lambda _: None))
    assert seen.ended == "measured" and seen.timed.steps >= 10 and seen.host.device == "cuda"
