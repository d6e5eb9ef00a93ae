import io

import pytest
from helpers.runs import lock_run, write_run
from rich.console import Console

from brim.observe.comparison import compare_runs
from brim.observe.run_summary import summarize
from brim.observe.runs_view import comparison_view, runs_table


def shown(renderable, width):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(renderable)
    return console.file.getvalue()


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "one", [{"step": 1200, "eval/accuracy": 0.75}], about={"model": "Net"})
    write_run(tmp_path / "sweep" / "two", result={"ended": "done", "seconds": 75, "metrics": {"loss": 0.5}})
    write_run(tmp_path / "three", [], [{"kind": "failed", "line": "ended with an error: no data"}], config="a: 1")
    lock_run(write_run(tmp_path / "four"))
    return [tmp_path / name for name in ("one", "sweep/two", "three", "four")]


def test_a_line_for_each_run(runs, tmp_path):
    text = shown(runs_table([summarize(run) for run in runs], tmp_path, 200), 200)
    one, two, three, four = text.splitlines()[2:]
    assert one.split()[:6] == ["one", "unfinished", "Net", "1,200", "accuracy", "0.75"]
    assert two.split()[:2] == ["sweep/two", "finished"] and "1 min 15 s" in two
    assert three.split()[:2] == ["three", "failed"] and "no data" in three
    assert four.split()[:2] == ["four", "running"]


@pytest.mark.parametrize("width", [46, 80, 200])
def test_it_fits_the_terminal(runs, tmp_path, width):
    text = shown(runs_table([summarize(run) for run in runs], tmp_path, width), width)
    assert len(text.splitlines()) == 6 and max(map(len, text.splitlines())) <= width
    assert "accuracy 0.75" in text
    text = shown(comparison_view(compare_runs(runs[0], runs[2]), width), width)
    assert max(map(len, text.splitlines())) <= width and "trainer.lr" in text


def test_names_are_whole_at_80_columns_and_can_be_told_apart_below(tmp_path):
    names = [f"20261116-14{minute}07-sequential{more}" for minute in (10, 11) for more in ("", "-2")]
    for name in names:
        result = {"ended": "done", "seconds": 75, "metrics": {"loss": 0.5}}
        write_run(
            tmp_path / name, [{"step": 1200, "eval/accuracy": 0.75}], about={"model": "Sequential"}, result=result
        )
    found = [summarize(tmp_path / name) for name in names]
    assert [line.split()[0] for line in shown(runs_table(found, tmp_path, 80), 80).splitlines()[2:]] == names
    narrow = shown(runs_table(found, tmp_path, 36), 36).splitlines()[2:]
    assert len({line.split()[0] for line in narrow}) == len(names) and max(map(len, narrow)) <= 36


def test_a_run_that_is_listed_alone_has_its_own_name(runs):
    assert shown(runs_table([summarize(runs[0])], runs[0], 80), 80).splitlines()[2].startswith("one ")


def test_a_moment_that_is_no_date_is_left_out(runs, tmp_path):
    (runs[0] / "metrics.jsonl").write_text('{"time": 1e300, "step": 1}\n')
    assert "one" in shown(runs_table([summarize(runs[0])], tmp_path, 200), 200)


def test_runs_that_are_equal_or_empty_say_so(runs):
    text = shown(comparison_view(compare_runs(runs[3], runs[3]), 80), 80)
    assert "no setting differs" in text and "neither run has written a number" in text
