"""A run folder is owned while a run is in it, says how it ended, and is not left empty."""

import pytest

from brim.engine.distributed.ranks import Ranks
from brim.engine.run_folder import run_files
from brim.engine.run_folder.opened_run import opened_run
from brim.engine.run_folder.result import Result
from brim.errors import DataError, RunFolderError
from brim.record import Journal


def opened(tmp_path, resume=None, is_dry=False):
    return opened_run(Ranks(), Journal(), resume, tmp_path / "run", "net", is_dry)


def test_nobody_else_can_open_it_meanwhile(tmp_path):
    with opened(tmp_path) as first:
        first.has_begun = True
        with pytest.raises(RunFolderError), opened(tmp_path, resume=tmp_path / "run"):
            pass
    with opened(tmp_path, resume=tmp_path / "run") as again:
        assert again.folder.path == first.folder.path


def test_a_failed_start_leaves_no_folder_and_a_begun_run_leaves_one(tmp_path):
    with pytest.raises(ValueError), opened(tmp_path):
        raise ValueError
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="late"), opened(tmp_path) as run:
        run.has_begun = True
        raise ValueError("late")
    assert "ended with an error: ValueError: late" in (tmp_path / "run" / "events.jsonl").read_text()


@pytest.mark.parametrize(
    ("error", "told"),
    [(KeyError("user"), "KeyError: 'user'"), (ValueError(), "ValueError"), (DataError("no data"), "no data")],
)
def test_an_error_is_told_with_its_class_unless_it_is_a_sentence(tmp_path, error, told):
    with pytest.raises(type(error)), opened(tmp_path) as run:
        run.has_begun = True
        raise error
    assert f'"line": "ended with an error: {told}"' in (tmp_path / "run" / "events.jsonl").read_text()


def test_the_end_is_said_unless_it_was_a_dry_run(tmp_path, capsys):
    for is_dry in (False, True):
        with opened(tmp_path / str(is_dry), is_dry=is_dry) as run:
            run.result = Result(run.folder.path, 3, 1, 0.5, "done", {"loss": 1.0})
        assert ("report: " in capsys.readouterr().err) == (not is_dry)
        assert ("done: 3 steps" in (run.folder.path / "report.html").read_text()) == (not is_dry)


def test_a_signal_is_named(tmp_path):
    with pytest.raises(KeyboardInterrupt), opened(tmp_path) as run:
        run.has_begun, run.stopped_by = True, "SIGTERM"
        raise KeyboardInterrupt
    assert '"by": "SIGTERM"' in (tmp_path / "run" / "events.jsonl").read_text()


def test_a_page_that_cannot_be_drawn_ends_no_run(tmp_path, monkeypatch, capsys):
    def fails(folder):
        raise KeyError("loss")

    monkeypatch.setattr(run_files, "write_report", fails)
    with opened(tmp_path) as run:
        run.result = Result(run.folder.path, 3, 1, 0.5, "done", {"loss": 1.0})
    said = capsys.readouterr().err
    assert "could not be written: KeyError: 'loss'" in said and f"run folder: {tmp_path}" in said
