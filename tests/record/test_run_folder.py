import json
import os
import re
from pathlib import Path

import pytest
import torch

import brim
from brim.errors import RunFolderError
from brim.record import RunFolder
from brim.record.run_folder import in_home, write_atomically


def test_a_folder_made_is_a_run_folder_that_can_be_opened(tmp_path):
    made = RunFolder.create(tmp_path / "deep" / "run")
    opened = RunFolder.open(str(tmp_path / "deep" / "run"))
    assert made.path == opened.path == tmp_path / "deep" / "run"
    assert opened.checkpoints.is_dir()


def test_without_a_path_the_folder_is_named_after_time_and_name_under_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = RunFolder.create(name="recommender")
    assert re.fullmatch(r"runs/\d{8}-\d{6}-recommender", str(folder.path))
    assert (tmp_path / folder.path / "checkpoints").is_dir()


def test_runs_that_start_in_the_same_second_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len({RunFolder.create().path for _ in range(5)}) == 5


def test_a_folder_that_holds_a_run_is_not_taken_again(tmp_path):
    RunFolder.create(tmp_path)
    with pytest.raises(RunFolderError, match="already holds a run"):
        RunFolder.create(tmp_path)


def test_a_folder_that_holds_other_things_can_become_a_run_folder(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder.create(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_opening_what_is_no_run_folder_says_what_is_missing(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunFolderError, match=r"metrics\.jsonl"):
            RunFolder.open(path)


def test_a_place_that_cannot_hold_a_folder_is_one_sentence_about_it(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="run_dir="):
        RunFolder.create(tmp_path / "file" / "run")


@pytest.mark.parametrize("use", [RunFolder.create, RunFolder.open])
def test_a_name_that_the_file_system_refuses_is_one_sentence_about_it(tmp_path, use):
    with pytest.raises(RunFolderError):
        use(tmp_path / ("x" * 300))


def test_files_are_written_whole_and_replace_the_old_ones(tmp_path):
    folder = RunFolder.create(tmp_path)
    folder.write_json("plan.json", {"old": 1})
    folder.write_json("plan.json", {"micro_batch": 8, "name": "ü"})
    assert json.loads((tmp_path / "plan.json").read_text()) == {"micro_batch": 8, "name": "ü"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "metrics.jsonl", "plan.json"]


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path):
    path = tmp_path / "config.yaml"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")  # half a surrogate pair cannot be encoded
    assert path.read_text() == "old"


def test_a_file_that_cannot_be_written_is_one_sentence_about_it(tmp_path):
    with pytest.raises(RunFolderError, match=r"nowhere.*run_dir="):
        write_atomically(tmp_path / "nowhere" / "config.yaml", "text")


def test_the_home_of_the_user_is_meant_by_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    RunFolder.create(tmp_path / "run")
    assert in_home("~/run") == RunFolder.open("~/run").path == tmp_path / "run"
    assert in_home("~other/run") == "~other/run"


def test_a_run_stays_in_its_folder_when_the_script_changes_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    class Leaves(brim.Callback):
        def on_epoch_start(self, trainer, epoch):
            os.chdir(tmp_path / "elsewhere")

    data = (torch.randn(8, 2), torch.randn(8, 1))
    trainer = brim.Trainer(torch.nn.Linear(2, 1), data, eval_data=data, loss_fn=torch.nn.MSELoss(), epochs=2,
                           device="cpu", run_dir="run", callbacks=[Leaves()])  # fmt: skip
    result = trainer.fit(save_model=True)
    assert result.run == Path("run")
    assert not list((tmp_path / "elsewhere").iterdir())
    run = tmp_path / "run"
    assert len(list((run / "checkpoints").glob("step-*"))) == 2
    assert (run / "model.safetensors").exists() and json.loads((run / "result.json").read_text())[
        "steps"
    ] == result.steps
    assert "done" in (run / "report.html").read_text()
