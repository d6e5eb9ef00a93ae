import io
import json
import signal
import subprocess
import sys

import pytest
import torch
from helpers.command import brim
from helpers.waiting import wait_until
from rich.console import Console

from brim.cli.bench import rates_table
from brim.config.bench import StepBench, Way
from brim.hardware import DeviceChoice

pytestmark = pytest.mark.usefixtures("own_folder")

SMALL = [
    "data.n_users=60", "data.n_items=40", "model.name=bpr", "train_ds.batch_size=64", "trainer.device=cpu",
    "trainer.threads=1", "trainer.compile=eager",
]  # fmt: skip


@pytest.mark.slow
def test_the_table_has_a_row_for_each_way_and_nothing_is_left_behind(monkeypatch, capsys, tmp_path):
    assert brim(["bench", "step", *SMALL, "--seconds", "0.2"], monkeypatch) in (0, None)
    out, err = capsys.readouterr()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    rows = {row[0]: row[1:] for row in cells if row[0]}
    assert list(rows) == ["eager", "fused", "compiled", "captured", "compiled and captured"]
    for name in ("eager", "fused"):
        assert float(rows[name][0].replace(",", "")) > 0
        assert rows[name][1].endswith("x")
        assert rows[name][2:] == ["", ""]
    assert rows["eager"][1] == "1.00x"
    assert rows["captured"][:3] == ["", "", ""]
    assert rows["captured"][3].startswith("capture='require'")
    assert out.splitlines()[-1].startswith("batch size 64; training on the CPU")
    turns = [line for line in err.splitlines() if line != "starting"]  # stderr is no terminal here
    assert len(turns) >= 6 and all(line.startswith("round ") for line in turns)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_json_is_one_object_and_nothing_else(monkeypatch, capsys, tmp_path):
    (tmp_path / "c.yaml").write_text("data: {n_users: 60, n_items: 40}\nmodel: {name: bpr}\n")
    before = list(tmp_path.iterdir())
    arguments = ["c.yaml", *SMALL[3:], "--seconds", "0.2", "--json"]
    assert brim(["bench", "step", *arguments], monkeypatch) in (0, None)
    found = json.loads(capsys.readouterr().out)
    assert (found["device"], found["batch_size"]) == ("cpu", 64)
    assert [way["way"] for way in found["ways"]] == ["eager", "fused", "compiled", "captured", "compiled and captured"]
    for way in found["ways"]:
        assert set(way) == {
            "way", "precision", "samples_per_second", "ratio", "gpu_busy", "memory", "reason", "rounds",
        }  # fmt: skip
        assert (way["samples_per_second"] is None) == (way["reason"] is not None)
    eager, fused = found["ways"][:2]
    assert eager["ratio"] == 1.0
    assert fused["ratio"] == pytest.approx(fused["samples_per_second"] / eager["samples_per_second"])
    assert list(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nope.yaml"], "there is no configuration file nope.yaml"),
        (["a.yaml", "b.yaml"], "one configuration file at most"),
        (["trainer.epoch=3"], "did you mean 'trainer.epochs'?"),
        (["--seconds", "0"], "seconds=0.0 must be a number from 0.1 to 3600"),
        (["--seconds", "nan"], "seconds=nan must be a number"),
        (["--seconds", "soon"], "'--seconds'"),
        (["--resume", "run"], "--resume"),
        (["data.name=ml-1m"], "needs data.path=FOLDER"),
        ([*SMALL, "trainer.optimizer=Adamm"], "did you mean 'Adam'?"),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence_on_stderr_exit_2_and_nothing_written(arguments, part, monkeypatch, capsys, tmp_path):
    assert brim(["bench", "step", *arguments], monkeypatch) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (sentence,) = err.splitlines()
    assert sentence.startswith("brim: ")
    assert part in sentence
    assert list(tmp_path.iterdir()) == []


def test_without_a_command_the_help_of_the_group_is_shown(monkeypatch, capsys):
    assert brim(["bench"], monkeypatch) in (0, None)
    assert " step " in capsys.readouterr().out


def has_begun(temporary):
    """Whether a step was logged: before the first one Ctrl-C is taken as it is by a run."""
    return any(path.stat().st_size for path in temporary.glob("brim-step-rate-*/run/metrics.jsonl"))


@pytest.mark.slow
def test_ctrl_c_ends_with_130_one_sentence_and_nothing_left_behind(tmp_path):
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    command = [sys.executable, "-m", "brim", "bench", "step", *SMALL, "--seconds", "600"]
    process = subprocess.Popen(
        command, cwd=here, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(temporary)},
    )  # fmt: skip
    try:
        wait_until(lambda: has_begun(temporary), process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "brim: stopped by Ctrl-C before everything was measured; nothing is kept"
    assert "Traceback" not in err and "checkpoint" not in err
    assert list(here.iterdir()) == []
    assert not list(temporary.glob("brim-*"))


def test_the_column_of_reasons_is_there_when_there_is_one():
    device = DeviceChoice(torch.device("cuda", 0), "on the GPU")
    eager = Way("eager", {}, rates=[1000.0], gpu_busy=0.25)
    full = Way("eager", {}, rates=[1000.0], precision="tf32", memory=3 << 30)
    table = rates_table(StepBench(device, 64, [full, eager]))
    assert [column.header for column in table.columns] == ["step", "samples/s", "to eager", "GPU busy", "memory"]
    assert list(table.columns[0].cells) == ["eager, tf32", "eager"] and list(table.columns[4].cells) == ["3.00 GiB", ""]
    for other, headers in (
        (Way("captured", {}, rates=[4321.0], gpu_busy=0.987), ["step", "samples/s", "to eager", "GPU busy"]),
        (Way("captured", {}, "too slow"), ["step", "samples/s", "to eager", "GPU busy", "why not"]),
    ):
        table = rates_table(StepBench(device, 64, [eager, other]))
        assert [column.header for column in table.columns] == headers
        screen = io.StringIO()
        Console(file=screen, width=100).print(table)
        assert "25 %" in screen.getvalue()
        assert ("4,321" in screen.getvalue() and "4.32x" in screen.getvalue()) == (not other.reason)
        assert other.reason in screen.getvalue()
