from pathlib import Path

import pytest
from helpers.runs import write_run

from brim.errors import RunFolderError
from brim.observe.run_search import DEEPEST, find_run, find_runs, open_folder


def names(folder):
    return [str(run.relative_to(folder)) for run in find_runs(folder)]


def test_runs_are_found_below_a_folder_and_their_ranks_are_not_runs(tmp_path):
    write_run(tmp_path / "b")
    write_run(tmp_path / "sweep" / "seed-1")
    write_run(tmp_path / "b" / "ranks" / "rank-1")
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").write_text("")
    assert names(tmp_path) == ["b", "sweep/seed-1"]


def test_a_run_itself_is_a_list_of_one(tmp_path):
    run = write_run(tmp_path / "run")
    assert list(find_runs(run)) == [run]


def test_hidden_folders_links_and_what_is_too_deep_are_passed_over(tmp_path):
    run = write_run(tmp_path / "run")
    write_run(tmp_path / ".hidden")
    (tmp_path / "latest").symlink_to(run)
    (tmp_path / "loop").symlink_to(tmp_path)
    write_run(tmp_path.joinpath(*"abcd"))
    write_run(tmp_path.joinpath(*"vwxyz"))
    assert len("abcd") == DEEPEST and names(tmp_path) == ["a/b/c/d", "run"]


def test_a_folder_that_may_not_be_looked_into_is_told(tmp_path, monkeypatch):
    import os

    write_run(tmp_path / "open")
    (tmp_path / "shut").mkdir()
    whole = os.scandir

    def scandir(path):
        if Path(path).name == "shut":
            raise PermissionError(13, "Permission denied")
        return whole(path)

    monkeypatch.setattr(os, "scandir", scandir)
    blocked = []
    assert [run.name for run in find_runs(tmp_path, blocked.append)] == ["open"]
    assert blocked == [tmp_path / "shut"]


def test_a_folder_that_is_not_there_is_refused_where_it_was_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_folder(None) == Path("runs") and list(find_runs(Path("runs"))) == []
    for name in ("missing", "a\0b", "x" * 5000):
        with pytest.raises(RunFolderError, match="there is no folder"):
            open_folder(Path(name))


def test_a_run_is_named_by_its_path_or_by_its_name_under_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "one")
    assert find_run(Path("runs/one")) == Path("runs/one") == find_run(Path("one"))
    for name in ("two", "a\0b"):
        with pytest.raises(RunFolderError, match="is not a run folder, and runs has none of that name"):
            find_run(Path(name))
