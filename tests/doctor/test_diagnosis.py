import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.observations import loader, observed, profiled

from brim.doctor.child_process import Ended, ScriptFailed
from brim.doctor.diagnosis import checked, diagnose, diagnosis, pace_for
from brim.doctor.observation import Observation, Window
from brim.doctor.order import OWN_FAULT
from brim.errors import ConfigError

PLANTED = Path(__file__).parent / "planted"


def test_a_script_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no script .*none.py; brim doctor takes a Python file"):
        diagnose(tmp_path / "none.py")


def test_a_notebook_is_told_how_it_becomes_a_script(tmp_path):
    with pytest.raises(ConfigError, match=r"train.ipynb is a notebook; .*nbconvert --to script"):
        diagnose(tmp_path / "train.ipynb")


def test_a_part_of_a_package_is_told_how_it_is_run():
    failed = Observation(
        "failed", 0, observed().host, error="ImportError: attempted relative import with no known parent"
    )
    with pytest.raises(ScriptFailed, match=r"brim doctor -m PACKAGE\.MODULE"):
        checked(Ended(failed, 1, ""))


def test_a_magic_command_is_told_to_be_removed():
    failed = Observation("failed", 0, observed().host, error="a.py:3: NameError: name 'get_ipython' is not defined")
    with pytest.raises(ScriptFailed, match=r"a\.py:3: .* remove the line"):
        checked(Ended(failed, 1, ""))


def test_the_ceiling_is_measured_or_estimated():
    fast = Window(50, 0.1)
    measured = diagnosis(observed(step=0.01, data=0.004, loaders=(loader(),), ceiling=fast))
    assert measured.ceiling == 0.002 and not measured.is_estimated and measured.of_reachable == pytest.approx(0.2)
    estimated = diagnosis(observed(step=0.01, data=0.004, loaders=(loader(),)))
    assert estimated.ceiling == pytest.approx(0.006) and estimated.is_estimated


def test_steps_of_different_moments_are_not_compared_where_others_have_the_cores():
    crowded = {"window": {"in_line": 0.5}, "ceiling": Window(50, 0.1)}
    beside = diagnosis(observed(step=0.01, data=0.004, loaders=(loader(),), **crowded))
    assert beside.ceiling == pytest.approx(0.006) and beside.is_estimated


def test_everything_can_be_told_as_json():
    told = json.loads(json.dumps(diagnosis(observed(data=0.004, loaders=(loader(),), profile=profiled())).as_json()))
    assert sum(told["shares"].values()) == pytest.approx(1)
    assert {"verdict", "findings", "notes", "samples_per_second", "share_of_reachable_speed"} <= set(told)
    assert told["seen"]["loaders"][0]["dataset"] == "Rows" and "losses" not in told["seen"]


def test_a_script_that_ends_soon_is_measured_at_a_quicker_pace():
    def seen(**changed):
        return Observation(
            **{"ended": "finished", "steps": 100, "host": observed().host, "training_seconds": 2.0} | changed
        )

    assert 0 < pace_for(seen(), 1.0) < 0.1
    assert pace_for(seen(steps=5), 1.0) is None
    assert pace_for(seen(profile=profiled()), 1.0) is None
    assert pace_for(seen(ended="measured"), 1.0) is None


def test_a_process_that_crashed_is_started_once_more(monkeypatch, tmp_path):
    (tmp_path / "train.py").write_text("")
    runs = [Ended(None, -11, ""), Ended(observed(sampled=Window(9, 0.1)), 0, "")]
    monkeypatch.setattr("brim.doctor.diagnosis.watch_script", lambda *_: runs.pop(0))
    said = []
    assert diagnose(tmp_path / "train.py", say=said.append).step == pytest.approx(0.01)
    assert runs == [] and "signal 11: once more" in said[0]
    runs = [Ended(None, -9, "")] * 2
    with pytest.raises(ScriptFailed, match="signal 9"):
        diagnose(tmp_path / "train.py")


def test_the_doctors_own_failure_is_not_blamed_on_the_script():
    with pytest.raises(ScriptFailed, match=r"brim doctor itself failed .*KeyError: 3"):
        checked(Ended(None, OWN_FAULT, "Traceback\nKeyError: 3"))


def test_a_script_that_ends_too_soon_is_told_by_what_it_lacks():
    for steps, lacks in ((8, "let it make 20 or more"), (300, "ended after 300 optimizer steps, too soon")):
        with pytest.raises(ScriptFailed, match=lacks):
            checked(Ended(Observation("finished", steps, observed().host), 0, ""))


def test_a_measurement_that_broke_off_is_no_short_script():
    broken = Observation("measured", 1, observed().host, notes=("measuring broke off in stage warm-up: OSError: x",))
    with pytest.raises(ScriptFailed, match=r"brim doctor itself failed .*stage warm-up: OSError: x"):
        checked(Ended(broken, 0, ""))


def test_a_script_that_ends_itself_is_told_with_its_last_line():
    failed = Observation("failed", 0, observed().host, error="it ended with exit code 2")
    with pytest.raises(ScriptFailed, match=r"exit code 2; its last line: error: --data is required$") as caught:
        checked(Ended(failed, 2, "usage: train.py\nerror: --data is required"))
    assert caught.value.exit_code == 2


def test_a_crash_is_told_by_its_stacks_without_a_list_of_modules():
    with pytest.raises(ScriptFailed, match=r"signal 11") as caught:
        checked(Ended(None, -11, "", crash="Thread 1:\n  File a.py, line 3\n\nExtension modules: numpy, torch"))
    assert "line 3" in str(caught.value) and "numpy" not in str(caught.value) and caught.value.exit_code == 139


def test_a_script_that_fails_late_is_told_with_what_is_known():
    late = Observation(**{**observed().__dict__, "ended": "failed", "error": "ValueError: x"})
    assert any("ValueError: x" in note for note in diagnosis(late).notes)


def test_a_script_that_fails_before_its_lines_were_looked_at_has_no_shares():
    late = Observation(**{**observed().__dict__, "ended": "failed", "error": "ValueError: x"})
    with pytest.raises(ScriptFailed, match="failed before it could be measured: ValueError: x") as caught:
        checked(Ended(late, 3, ""), has_shares=True)
    assert caught.value.exit_code == 3
    assert checked(Ended(late, 3, "")) is late  # of cures only times are asked


def test_a_script_that_fails_late_keeps_its_exit_code(monkeypatch, tmp_path):
    (tmp_path / "train.py").write_text("")
    late = Observation(**{**observed().__dict__, "ended": "failed", "error": "x", "sampled": Window(9, 0.1)})
    for code, told in ((3, 3), (0, 1)):
        ended = Ended(late, code, "")
        monkeypatch.setattr("brim.doctor.diagnosis.watch_script", lambda *_, ended=ended: ended)
        assert diagnose(tmp_path / "train.py").exit_code == told


# Which cause is found, and with what share, depends on what else the machine does: recordings test that, and
# benchmarks/doctor.py runs the scripts. Here is what a run brings on any machine.
@pytest.mark.slow
@pytest.mark.parametrize("script", ["slow_transform", "slow_collate"])
def test_a_script_is_watched_to_a_diagnosis(script):
    found = diagnose(PLANTED / f"{script}.py", patience=600.0, pace=0.1)
    assert found.seen.ended == "measured" and found.seen.train_loader.batches > 0
    assert sum(found.shares.as_dict().values()) == pytest.approx(1)
    assert found.ceiling > 0 and found.seen.ceiling is not None and found.verdict


def test_a_short_script_that_was_faster_the_second_time_is_run_a_third_time(monkeypatch, tmp_path):
    (tmp_path / "short.py").write_text("")
    ended, said = replace(observed(profile=None), ended="finished", training_seconds=8.0), []
    enough = replace(ended, profile=profiled())
    for seconds, expected in ((enough, 2), (replace(ended, timed=None), 3)):
        runs = [Ended(seen, 0, "") for seen in (replace(ended, timed=None), seconds, enough)]
        monkeypatch.setattr("brim.doctor.diagnosis.watch_script", lambda *_, runs=runs: runs.pop(0))
        said.clear()
        assert diagnose(tmp_path / "short.py", say=said.append).pace < 1 / expected
        assert len(said) == expected - 1 and len(runs) == 3 - expected


@pytest.mark.slow
def test_a_short_script_is_run_twice_and_told(tmp_path):
    script = tmp_path / "short.py"
    script.write_text(
        "import torch\nmodel = torch.nn.Linear(64, 64)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(120):\n    model(torch.ones(64, 64)).pow(2).mean().backward()\n    optimizer.step()\n"
    )
    said = []
    found = diagnose(script, patience=600.0, say=said.append, pace=100.0)
    assert any("once more" in sentence for sentence in said)
    assert found.seen.timed.steps >= 10 and found.pace < 100


@pytest.mark.slow
@pytest.mark.parametrize("library", ["lightning", "transformers", "accelerate"])
def test_other_peoples_loops_are_watched_too(tmp_path, library):
    pytest.importorskip(library)
    script = tmp_path / "train.py"
    script.write_text(LOOPS[library])
    found = diagnose(script, patience=600.0, pace=0.05)
    assert found.seen.train_loader.batches > 0 and found.seen.timed.samples > 0
    assert found.seen.ceiling is not None and found.seen.profile is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


DATA = """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(4000, 8), torch.randn(4000, 1))
"""
LOOPS = {
    "lightning": DATA
    + """
import lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)
    def training_step(self, batch, _):
        loss = (self.net(batch[0]) - batch[1]).pow(2).mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())
lightning.Trainer(max_epochs=1000, accelerator="cpu", logger=False).fit(Model(), DataLoader(data, batch_size=64))
""",
    "transformers": DATA
    + """
from transformers import Trainer, TrainingArguments
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)
    def forward(self, x, labels):
        return {"loss": (self.net(x) - labels).pow(2).mean()}
rows = [{"x": x, "labels": y} for x, y in data]
arguments = TrainingArguments("out", num_train_epochs=1000, save_steps=20, report_to=[], use_cpu=True)
Trainer(Model(), arguments, train_dataset=rows).train()
""",
    "accelerate": DATA
    + """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(8, 1)
made = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), DataLoader(data, batch_size=64))
model, optimizer, loader = made
for _ in range(1000):
    for x, y in loader:
        accelerator.backward((model(x) - y).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
    accelerator.save_state("state")
""",
}
