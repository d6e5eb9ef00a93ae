import json

import pytest
from helpers.runs import write_run

from brim.observe.comparison import compare_runs


@pytest.fixture
def runs(tmp_path):
    a = write_run(
        tmp_path / "a",
        [{"step": 10, "loss": 1.0, "step_ms": 20.0, "samples_per_second": 100.0, "memory_process": 2**30},
         {"step": 20, "eval/loss": 0.4, "eval/accuracy": 0.7}, {"step": 30, "eval/loss": 0.5, "eval/accuracy": 0.8}],
        config="trainer: {lr: 0.1, epochs: 3, ema: null, run_dir: a}\ndata: {k: [1, 2]}\n",
        result={"ended": "done", "steps": 30, "seconds": 9.0, "metrics": {"loss": 0.4, "accuracy": 0.7}},
        about={"model": "Net", "command": "train.py"}, machine={"torch": "2.11"},
    )  # fmt: skip
    b = write_run(
        tmp_path / "b",
        [{"step": 10, "loss": 0.5, "step_ms": 10.0, "samples_per_second": 200.0},
         {"step": 20, "eval/loss": 0.6, "eval/accuracy": 0.9}],
        config="trainer: {lr: 0.1, epochs: 5, clip_norm: true, run_dir: b}\ndata: {k: [1, 2]}\n",
        result={"ended": "done", "metrics": {"loss": 0.6, "accuracy": 0.9, "f1": 0.5}},
        about={"model": "Net", "command": "other.py"}, machine={"torch": "2.13"},
    )  # fmt: skip
    return a, b


def test_settings_that_differ_are_listed_by_their_dotted_names(runs):
    found = compare_runs(*runs)
    differing = {setting.name: (setting.a, setting.b) for setting in found.settings}
    assert differing == {
        "trainer.epochs": (3, 5), "trainer.clip_norm": (None, True), "torch": ("2.11", "2.13"),
    }  # fmt: skip


def test_metrics_stand_side_by_side_with_the_better_one(runs):
    rows = {row.name: (row.a, row.b, row.better) for row in compare_runs(*runs).metrics}
    assert rows == {
        "loss": (0.4, 0.6, "a"), "accuracy": (0.7, 0.9, "b"), "f1": (None, 0.5, ""),
        "best eval/loss": (0.4, 0.6, "a"), "best eval/accuracy": (0.8, 0.9, "b"),
    }  # fmt: skip


def test_a_run_that_says_so_knows_best_which_way_its_monitor_goes(runs):
    result = {"metrics": {"error": 1.0}, "monitor": "error", "higher_is_better": True}
    for run, value in zip(runs, (1.0, 2.0), strict=True):
        (run / "result.json").write_text(json.dumps({**result, "metrics": {"error": value}}))
    assert [row.better for row in compare_runs(*runs).metrics if row.name == "error"] == ["b"]


def test_a_metric_whose_direction_nobody_knows_is_not_judged(runs):
    for run, value in zip(runs, (1.0, 2.0), strict=True):
        with (run / "metrics.jsonl").open("a") as file:
            for step, beauty in ((40, 9.0), (50, value)):
                file.write(json.dumps({"step": step, "eval/beauty": beauty, "eval/nll": value}) + "\n")
    rows = {row.name: (row.a, row.b, row.better) for row in compare_runs(*runs).metrics}
    assert rows["last eval/beauty"] == (1.0, 2.0, "") and rows["best eval/nll"] == (1.0, 2.0, "a")


def test_speed_and_memory(runs):
    rows = {row.name: row for row in compare_runs(*runs).pace}
    assert (rows["samples/s"].ratio, rows["samples/s"].better) == (2.0, "b")
    assert (rows["step ms"].ratio, rows["step ms"].better) == (0.5, "b")
    assert (rows["peak memory"].a, rows["peak memory"].b, rows["peak memory"].better) == (2**30, None, "")
    assert (rows["steps"].a, rows["steps"].b, rows["steps"].better) == (30, 20, "")
    assert rows["last training loss"].better == "b"


def test_a_run_beside_itself_differs_in_nothing(runs):
    found = compare_runs(runs[0], runs[0])
    assert found.settings == [] and {row.better for row in (*found.metrics, *found.pace)} == {""}


def test_it_is_plain_json(runs):
    told = json.loads(json.dumps(compare_runs(*runs).as_json()))
    assert told["a"]["model"] == "Net" and told["metrics"][0]["ratio"] == pytest.approx(1.5)


def test_a_configuration_that_cannot_be_read_is_said_and_the_rest_is_compared(runs):
    (runs[1] / "config.yaml").write_text("a: [")
    found = compare_runs(*runs)
    assert len(found.notes) == 1 and found.notes[0].startswith("config.yaml of b line")
    assert found.metrics and "trainer.lr" in {setting.name for setting in found.settings}
