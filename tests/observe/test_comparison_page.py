import json

from helpers.records import data_of
from helpers.runs import write_run

from brim.observe.compared_words import show_number
from brim.observe.comparison import compare_runs
from brim.observe.comparison_page import comparison_data, comparison_page


def two_runs(folder):
    lines = [{"step": step, "loss": 1 / step, "step_ms": 10.0, "eval/loss": 0.5} for step in range(1, 50)]
    a = write_run(
        folder / "a", lines, [{"kind": "alert", "line": "slow"}], result={"ended": "done", "metrics": {"f1": 0.5}}
    )
    faster = [{**line, "step_ms": 4.0} for line in lines[:30]]
    return a, write_run(folder / "b", faster, config="trainer: {lr: .nan, epochs: 3}\n")


def test_both_runs_are_on_the_page_with_what_brim_runs_compare_says(tmp_path):
    a, b = two_runs(tmp_path)
    data = data_of(comparison_page(a, b))
    assert data == comparison_data(a, b)
    assert [run["name"] for run in data["runs"]] == ["a", "b"]
    found = compare_runs(a, b)
    told = {row["name"]: (row["a"], row["b"], row["better"]) for row in data["comparison"]["numbers"]}
    assert told == {
        row.name: (show_number(row.name, row.a), show_number(row.name, row.b), row.better) for row in found.numbers
    }
    assert told["step ms"] == ("10", "4", "b") and told["f1"] == ("0.5", "-", "")
    assert data["comparison"]["settings"] == [{"name": "trainer.lr", "a": "0.1", "b": "NaN"}]
    assert [state["state"] for state in data["comparison"]["states"]] == ["finished", "unfinished"]


def test_step_times_of_both_have_one_axis(tmp_path):
    a, b = (run["step_times"] for run in comparison_data(*two_runs(tmp_path))["runs"])
    assert (a["low"], a["high"], len(a["counts"])) == (b["low"], b["high"], len(b["counts"]))
    assert sum(a["counts"]) == 49 and sum(b["counts"]) == 30


def test_what_stands_on_the_pages_of_the_runs_is_not_repeated(tmp_path):
    a, b = two_runs(tmp_path)
    (a / "machine.json").write_text(json.dumps({"gpu": "only here"}))
    assert "machine" not in comparison_data(a, b)["runs"][0]


def test_runs_without_numbers_have_a_page_too(tmp_path):
    page = comparison_page(write_run(tmp_path / "a"), write_run(tmp_path / "b"))
    assert data_of(page)["comparison"]["numbers"] == []
