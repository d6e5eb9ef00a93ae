import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.command import Command
from helpers.observations import loader, observed, profiled

from brim.cli.observe.doctor_view import show_diagnosis, show_treatments
from brim.doctor.diagnosis import diagnosis
from brim.doctor.edits.suggestion import Suggestion
from brim.doctor.observation import LineTime
from brim.doctor.order import Cures
from brim.doctor.treatment import Gain, Treatment


@pytest.fixture
def brim(monkeypatch, capsys):
    return Command(monkeypatch, capsys)


SLOW = loader(make_seconds=0.03, make_cpu_seconds=0.03)


def test_a_script_that_is_not_there_is_one_sentence(brim, tmp_path):
    done = brim(tmp_path, "doctor", "train.py")
    assert done.returncode == 2 and "there is no script train.py" in done.stderr and done.stdout == ""


def test_a_diagnosis_is_shown_with_speed_shares_and_findings(capsys):
    show_diagnosis(diagnosis(observed(step=0.04, data=0.03, loaders=(SLOW,))))
    shown = capsys.readouterr().out
    assert "1,600 samples/s, 40.0 ms a step over 100 steps" in shown
    assert "25 % of the reachable speed" in shown and "waiting for data" in shown and "75.0 %" in shown
    assert "1. no-workers" in shown and "cure: DataLoader(..., num_workers=3" in shown


def test_copies_to_a_gpu_are_shown_beside_what_is_expected(capsys):
    seen = observed(host={"device": "cuda"}, profile=profiled(compute=0.008, copy=0.001, copy_all=0.002))
    show_diagnosis(diagnosis(seen))
    shown = " ".join(capsys.readouterr().out.split())
    assert "copies to the GPU: 2.00 ms a step (as expected, below 10 ms), 50 % of it while kernels run" in shown


def test_a_diff_is_shown_with_nothing_before_its_lines(capsys):
    found = diagnosis(observed(step=0.04, data=0.03, loaders=(SLOW,)))
    suggestion = Suggestion(
        "no-workers", "train.py", "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-x[0]\n+y\n", "y\n", "n"
    )
    show_diagnosis(replace(found, suggestions=[suggestion]))
    shown = capsys.readouterr().out
    assert (
        "\n--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-x[0]\n+y\n" in shown
        and "as a diff, nothing is written: (n)" in shown
    )


def test_changes_are_asked_for_together_with_cures(brim, tmp_path):
    done = brim(tmp_path, "doctor", "--allow-changes", "train.py")
    assert done.returncode == 2 and "add --apply" in done.stderr


def test_brackets_in_the_users_code_are_shown_as_they_are(capsys):
    show_diagnosis(diagnosis(observed(lines=(LineTime("[red].py:3", "x = rows[red]", "data", 0.5),))))
    shown = capsys.readouterr().out
    assert "x = rows[red]" in shown and "[red].py:3 50 %" in shown


def test_a_line_with_work_of_several_kinds_is_named_once(capsys):
    parts = [("forward", 0.3), ("backward", 0.2), ("optimizer", 0.1)]
    show_diagnosis(diagnosis(observed(lines=tuple(LineTime("a.py:7", "", kind, share) for kind, share in parts))))
    shown = capsys.readouterr().out
    assert "a.py:7 60 %" in shown and shown.count("a.py:7") == 1


def test_treatments_are_shown_with_their_interval(capsys):
    show_treatments(
        [
            Treatment("a", Cures(num_workers=2), Gain(2.0, 1.8, 2.2), True, True, "same losses"),
            Treatment("b", Cures(threads=1), None, None, False, "not tried: time was up"),
        ]
    )
    shown = capsys.readouterr().out
    assert "num_workers=2: 2.00 x (1.80 to 2.20), same losses" in shown and "threads=1: not tried" in shown
    show_treatments([])
    assert "none of the cures can be applied" in capsys.readouterr().out


@pytest.fixture
def examined(monkeypatch):
    """Scripts that are to be examined, in the place of that: what each was, and with which arguments."""
    asked = []

    def diagnose(script, arguments, patience, say, trace):
        say("step 10: timing steps")
        asked.append((script.name, script.read_text(), arguments, patience, trace))
        return diagnosis(observed(step=0.04, data=0.03, loaders=(SLOW,)))

    monkeypatch.setattr("brim.doctor.diagnosis.diagnose", diagnose)
    return asked


def test_a_script_gets_its_own_arguments(brim, tmp_path, examined):
    (tmp_path / "train.py").write_text("pass")
    done = brim(tmp_path, "doctor", "--patience", "7", "--profile", "t.json", "train.py", "--", "--lr", "0.1")
    assert examined == [("train.py", "pass", ("--lr", "0.1"), 7.0, Path("t.json"))]
    assert done.returncode == 0 and "1. no-workers" in done.stdout and done.stderr == "step 10: timing steps\n"
    told = json.loads(brim(tmp_path, "doctor", "--json", "train.py").stdout)
    assert told["findings"][0]["cause"] == "no-workers" and told["treatments"] == []


def test_a_script_that_failed_late_is_told_and_its_exit_code_kept(brim, tmp_path, monkeypatch):
    failed = replace(diagnosis(observed(step=0.04, data=0.03, loaders=(SLOW,))), exit_code=3)
    monkeypatch.setattr("brim.doctor.diagnosis.diagnose", lambda *_: failed)
    (tmp_path / "train.py").write_text("pass")
    done = brim(tmp_path, "doctor", "train.py")
    assert done.returncode == 3 and "1. no-workers" in done.stdout and done.stderr == ""
    assert brim(tmp_path, "doctor", "--json", "train.py").returncode == 3


def test_a_configuration_and_a_module_become_scripts_that_are_gone_afterwards(brim, tmp_path, examined):
    assert brim(tmp_path, "doctor", "model.name=bpr", "trainer.device=cpu").returncode == 0
    assert brim(tmp_path, "doctor", "-m", "project.train", "--", "--fast").returncode == 0
    (_, configured, none, *_), (_, module, own, *_) = examined
    assert "train_configured(None, ['model.name=bpr', 'trainer.device=cpu'])" in configured and none == ()
    assert "run_module('project.train'" in module and own == ("--fast",)
    assert list(tmp_path.iterdir()) == []


def test_cures_are_tried_where_that_is_asked_for(brim, tmp_path, examined, monkeypatch):
    asked = []

    def treat(script, arguments, found, patience, say, allow_changes, limit):
        asked.append((script.name, allow_changes))
        return [Treatment("a", Cures(num_workers=2), Gain(2.0, 1.8, 2.2), True, True, "same losses")]

    monkeypatch.setattr("brim.doctor.treatment.treat", treat)
    (tmp_path / "train.py").write_text("pass")
    assert "num_workers=2: 2.00 x" in brim(tmp_path, "doctor", "--apply", "train.py").stdout
    told = json.loads(brim(tmp_path, "doctor", "--apply", "--allow-changes", "--json", "train.py").stdout)
    assert len(told["treatments"]) == 1 and asked == [("train.py", False), ("train.py", True)]


def test_ctrl_c_says_what_became_of_the_script(brim, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("brim.doctor.diagnosis.diagnose", interrupted)
    done = brim(tmp_path, "doctor", "train.py")
    assert done.returncode == 130 and "the script was ended, and its files are as they were" in done.stderr


@pytest.mark.slow
def test_the_command_runs_a_script_with_its_arguments_and_prints_json(brim, tmp_path):
    (tmp_path / "train.py").write_text(
        "import sys, time, torch\nassert sys.argv[1:] == ['--wait', '0.03']\n"
        "model = torch.nn.Linear(4, 4)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "def batches():\n    while True:\n        time.sleep(float(sys.argv[2]))\n        yield torch.ones(2, 4)\n"
        "for x in batches():\n    optimizer.zero_grad()\n    model(x).sum().backward()\n    optimizer.step()\n"
    )
    done = brim(tmp_path, "doctor", "--json", "train.py", "--", "--wait", "0.03")
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["seen"]["ended"] == "measured" and told["treatments"] == []
    assert told["shares"]["data"] > 0 and sum(told["shares"].values()) == pytest.approx(1)
