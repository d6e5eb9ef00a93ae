"""``brim report``: where the page is, and one sentence for what cannot be."""

import os

import pytest
from helpers.command import Command
from helpers.records import data_of
from helpers.runs import write_run


@pytest.fixture
def brim(monkeypatch, capsys):
    return Command(monkeypatch, capsys)


@pytest.fixture
def project(tmp_path):
    for name in ("old", "new"):
        write_run(tmp_path / "runs" / name, [{"step": 5, "loss": 0.5}])
    return tmp_path


def test_the_page_of_a_run_is_written_into_its_folder(brim, project):
    done = brim(project, "report", "old")
    assert (done.returncode, done.stdout, done.stderr) == (0, "runs/old/report.html\n", "")
    assert data_of((project / "runs/old/report.html").read_text())["name"] == "old"


def test_two_runs_are_one_page_beside_that_of_the_first(brim, project):
    done = brim(project, "report", "old", "runs/new")
    assert (done.returncode, done.stdout) == (0, "runs/old/report-with-new.html\n")
    shown = data_of((project / "runs/old/report-with-new.html").read_text())
    assert [run["name"] for run in shown["runs"]] == ["old", "new"]
    assert not (project / "runs/old/report.html").exists()


@pytest.mark.parametrize("runs", [["old"], ["old", "new"]])
def test_a_page_goes_where_one_says(brim, project, runs):
    assert brim(project, "report", *runs, "--to", "here.html").stdout == "here.html\n"
    assert (project / "here.html").exists()


def test_in_a_folder_it_has_its_own_name(brim, project):
    assert brim(project, "report", "old", "new", "--to", ".").stdout == "report-with-new.html\n"
    assert (project / "report-with-new.html").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Missing argument 'RUN'"),
        (["missing"], "missing is not a run folder, and runs has none of that name"),
        (["old", "missing"], "missing is not a run folder, and runs has none of that name"),
        (["old", "--to", "no/such/folder.html"], "No such file or directory; name another place with --to"),
    ],
)
def test_what_cannot_be_is_one_sentence(brim, project, arguments, sentence):
    done = brim(project, "report", *arguments)
    assert done.returncode == 2 and sentence in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("runs", [["old"], ["new", "old"]])
def test_a_pipe_in_place_of_a_file_is_refused(brim, project, runs):
    os.mkfifo(project / "runs/old/plan.json")
    done = brim(project, "report", *runs)
    assert done.returncode == 2 and "plan.json is no file" in done.stderr
