import json

import pytest
import yaml
from helpers.runs import STARTED, lock_run, write_run
from hypothesis import example, given
from hypothesis import strategies as st

import brim
from brim.observe import run_summary
from brim.observe.run_summary import scan_metrics, summarize
from brim.record import RunFolder
from brim.record.key_numbers import key_numbers
from brim.record.run_record import read_run
from brim.record.series import read_lines, series_of

LINE = st.fixed_dictionaries(
    {"time": st.just(1.0), "step": st.integers(0, 9), "epoch": st.just(1)},
    optional={"loss": st.just(0.5), "eval/a": st.none() | st.floats(0, 1), "eval/b": st.just(2)},
)
BROKEN = st.sampled_from(['{"step": 3', "null", "", '{"step": "3", "eval/a": 1}', '{"eval/a": 1}', '{"step": 2.0}'])
LINES = [
    {"step": 1, "loss": 2.0},
    {"step": 10, "loss": 1.0},
    {"step": 10, "eval/loss": 0.8},
    {"step": 20, "eval/loss": 0.9},
]


def test_a_run_that_brim_made_is_summed_up_as_its_page_does(tmp_path):
    import torch
    from torch import nn

    x, y = torch.randn(40, 3), torch.randn(40, 1)
    loader = brim.Loader((x, y), batch_size=8)
    settings = {"loss_fn": nn.MSELoss(), "device": "cpu", "threads": 1, "epochs": 2}
    result = brim.Trainer(nn.Linear(3, 1), loader, (x, y), run_dir=tmp_path / "run", **settings).fit()
    found, record = summarize(tmp_path / "run"), read_run(RunFolder.open(tmp_path / "run"))
    key = key_numbers(record.series, record.events, record.result)
    assert found.best == key["best"] and found.best is not None
    assert (found.steps, found.epochs, found.seconds) == (10, 2, key["seconds"]) and result.steps == 10
    assert (found.model, found.state.word, found.name) == ("Linear", "finished", "run")
    assert record.about["planned_steps"] == 10
    assert set(found.shares) == {"data_wait", "compute", "rest"}
    assert sum(found.shares.values()) == pytest.approx(1, abs=0.001)
    assert json.loads(json.dumps(found.as_json()))["shares"] == found.shares


def test_a_run_that_was_killed_is_told_by_its_last_lines(tmp_path):
    run = write_run(tmp_path / "run", LINES, [{"kind": "device"}])
    found = summarize(run)
    assert (found.steps, found.epochs, found.seconds, found.started) == (20, 1, 3.0, STARTED)
    assert found.best == {"name": "loss", "value": 0.8, "step": 10, "epoch": 1}


def test_a_run_that_goes_on_takes_until_now(tmp_path):
    run = write_run(tmp_path / "run", LINES)
    lock_run(run)
    found = summarize(run)
    assert found.state.word == "running" and found.seconds > 3600
    assert json.loads(json.dumps(found.as_json()))["process"] == found.state.owner.process


def test_a_run_of_an_older_version_has_its_model_beside_the_arguments(tmp_path):
    run = write_run(tmp_path / "run", model={"model": "BPR", "arguments": {}}, result={"steps": 7, "ended": "done"})
    found = summarize(run)
    assert (found.model, found.steps, found.best, found.seconds) == ("BPR", 7, None, None)


def test_what_was_evaluated_before_the_run_went_back_does_not_count(tmp_path):
    lines = [{"step": 10, "eval/loss": 0.1}, {"step": 5, "loss": 1.0}, {"step": 10, "eval/loss": 0.5}]
    assert summarize(write_run(tmp_path / "run", lines)).best["value"] == 0.5


@pytest.mark.parametrize(
    ("settings", "best"),
    [({"monitor": "accuracy"}, ("accuracy", 0.9)), ({"monitor": "eval/beauty", "mode": "min"}, ("beauty", 1)),
     ({"monitor": None}, ("loss", 0.8)), ({"monitor": [1]}, ("loss", 0.8)), ({"monitor": {}}, ("loss", 0.8)),
     ({}, ("loss", 0.8))],
)  # fmt: skip
def test_a_run_without_a_result_is_judged_by_what_it_was_told_to_monitor(tmp_path, settings, best):
    lines = [{"step": 10, "eval/loss": 0.8, "eval/accuracy": 0.5, "eval/beauty": 2},
             {"step": 20, "eval/loss": 0.9, "eval/accuracy": 0.9, "eval/beauty": 1}]  # fmt: skip
    others = {
        "params": {"monitor": "x", "mode": "y"},
        "trainer": {"lr": 0.1, **settings, "epochs": 3},
        "z": {"mode": 1},
    }
    found = summarize(write_run(tmp_path / "run", lines, config=yaml.safe_dump(others, sort_keys=False)))
    assert (found.best["name"], found.best["value"]) == best


@pytest.mark.parametrize("name", ["metrics.jsonl", "events.jsonl", "about.json", "result.json"])
def test_half_a_file_leaves_open_what_it_would_say(tmp_path, name):
    run = write_run(tmp_path / "run", LINES, [{"kind": "end"}], about={"model": "Net"}, result={"ended": "done"})
    content = (run / name).read_bytes()
    for size in (0, 1, len(content) // 2, len(content) - 1):
        (run / name).write_bytes(content[:size])
        assert summarize(run).folder == run


def evaluations(series):
    return {name: curve.points for name, curve in series.items() if name.startswith("eval/")}


@example(['{"step": 2, "eval/a": 1}', '{"step": 3}', '{"step": 2}'])  # went back to before the evaluation
@example(['{"step": 2, "eval/a": 1}', '{"step": 3}', '{"step": 2, "eval/b": 1}'])
@given(st.lists(LINE.map(json.dumps) | BROKEN))
def test_evaluations_are_those_that_reading_everything_gives(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    path.write_text("\n".join(lines))
    every = series_of(read_lines(path))
    found = scan_metrics(path).evaluations
    assert evaluations(found) == evaluations(every)


def test_lines_of_steps_are_not_taken_apart(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    steps = [{"time": 1.0, "step": step, "epoch": 1, "loss": 0.5} for step in range(100)]
    path.write_text("".join(json.dumps(line) + "\n" for line in [*steps, {"step": 100, "epoch": 1, "eval/a": 3.0}]))
    taken = []
    whole = run_summary.json_object
    monkeypatch.setattr(run_summary, "json_object", lambda text: taken.append(text) or whole(text))
    found = scan_metrics(path)
    assert len(taken) == 1 and found.evaluations["eval/a"].values == [3.0]
    assert found.first["step"] == 0 and found.last["step"] == 100
