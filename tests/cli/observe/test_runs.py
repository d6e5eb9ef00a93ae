"""``brim runs``: the list, two runs side by side, and one sentence for what cannot be."""

import json

import pytest
from helpers.command import Command
from helpers.runs import write_run

from brim.cli.observe import runs as runs_command


@pytest.fixture
def brim(monkeypatch, capsys):
    return Command(monkeypatch, capsys)


@pytest.fixture
def project(tmp_path):
    for place, name in enumerate(("new", "old")):
        write_run(tmp_path / "runs" / name, [{"step": 5, "time": 1e9 - place, "eval/loss": 0.5 + place}])
    return tmp_path


def test_runs_are_listed_in_the_order_they_began(brim, project):
    done = brim(project, "runs")
    assert done.returncode == 0 and done.stderr == ""
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == ["old", "new"]


def test_json_holds_every_run(brim, project):
    told = json.loads(brim(project, "runs", "--json").stdout)
    assert [run["run"] for run in told] == ["runs/old", "runs/new"]
    assert told[1]["best"]["value"] == 0.5 and told[1]["state"] == "unfinished"


def test_only_the_last_ones(brim, project):
    done = brim(project, "runs", "runs", "--last", "1")
    assert "new" in done.stdout and "old " not in done.stdout and "the last 1 of 2 runs" in done.stdout


def test_where_there_are_none_that_is_said(brim, tmp_path):
    done = brim(tmp_path, "runs")
    assert (done.returncode, done.stdout) == (0, "no runs in runs; brim train makes one\n")
    assert brim(tmp_path, "runs", "--json").stdout == "[]\n"
    done = brim(tmp_path, "runs", "elsewhere")
    assert done.returncode == 2 and "there is no folder elsewhere; name one with runs in it, or a run" in done.stderr


def test_two_runs_by_their_names(brim, project):
    done = brim(project, "runs", "compare", "old", "runs/new")
    assert done.returncode == 0 and "best eval/loss" in done.stdout and "no setting differs" in done.stdout
    told = json.loads(brim(project, "runs", "compare", "old", "new", "--json").stdout)
    assert (told["a"]["run"], told["metrics"][0]["better"]) == ("runs/old", "b")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compare", "old"], "Missing argument 'B'"),
        (["compare", "old", "missing"], "missing is not a run folder, and runs has none of that name"),
        (["--what"], "No such option: --what"),
        (["--last", "0"], "Invalid value for '--last'"),
    ],
)
def test_what_cannot_be_is_one_sentence(brim, project, arguments, sentence):
    done = brim(project, "runs", *arguments)
    assert done.returncode == 2 and sentence in done.stderr and len(done.stderr.splitlines()) == 1


def test_how_far_it_is_shows_after_two_seconds_in_a_terminal(project, monkeypatch):
    import io

    from helpers.clock import Clock
    from rich.console import Console

    clock, screen = Clock(), io.StringIO()
    monkeypatch.setattr(runs_command, "time", clock)
    monkeypatch.setattr("rich.console.Console", lambda stderr: Console(file=screen, force_terminal=True, width=80))
    for number, _ in enumerate(runs_command.told_if_long([project] * 4)):
        assert ("reading runs" in screen.getvalue()) == (number >= 3)
        clock.sleep(0.9)
