import glob
import os
import shutil
from pathlib import Path

import pytest
import torch

from brim.doctor.watching.file_shadow import FileShadow


@pytest.fixture
def home(tmp_path, unhooked, monkeypatch):
    """A user's folder with a file, below no folder for temporary files."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    (folder / "old").mkdir()
    (folder / "old" / "model.pt").write_text("weights")
    real = os.listdir
    shadow = FileShadow(tmp_path / "shadow", lambda: None)
    shadow._temporary = "/nowhere"
    with monkeypatch.context():
        shadow.install()
        home = folder
        home_files = lambda: sorted(real(str(folder)))  # noqa: E731
        yield home, home_files, shadow
    assert home_files() == ["notes.txt", "old"]


def test_what_is_written_is_read_again_and_nothing_changes(home):
    folder, _, _ = home
    (folder / "run").mkdir()
    (folder / "run" / "log.csv").write_text("1,2\n")
    with (folder / "run" / "log.csv").open("a") as file:
        file.write("3,4\n")
    assert (folder / "run" / "log.csv").read_text() == "1,2\n3,4\n"
    assert sorted(os.listdir(folder)) == ["notes.txt", "old", "run"]
    assert sorted(Path(path).name for path in glob.glob(f"{folder}/*")) == ["notes.txt", "old", "run"]
    with (folder / "notes.txt").open("a") as file:
        file.write(" and more")
    assert (folder / "notes.txt").read_text() == "mine and more"


def test_what_is_deleted_is_only_hidden(home):
    folder, _, _ = home
    (folder / "notes.txt").unlink()
    assert not (folder / "notes.txt").exists() and "notes.txt" not in os.listdir(folder)
    shutil.rmtree(folder / "old")
    assert not (folder / "old" / "model.pt").exists()
    (folder / "old").mkdir()
    assert os.listdir(folder / "old") == []
    with pytest.raises(FileNotFoundError):
        (folder / "notes.txt").read_text()


def test_files_are_moved_and_replaced_elsewhere(home):
    folder, _, _ = home
    os.replace(folder / "notes.txt", folder / "moved.txt")
    assert (folder / "moved.txt").read_text() == "mine" and not (folder / "notes.txt").exists()
    shutil.move(folder / "moved.txt", folder / "again.txt")
    shutil.copy2(folder / "again.txt", folder / "copy.txt")
    assert (folder / "copy.txt").read_text() == "mine"


def test_errors_are_those_of_the_file_system(home):
    folder, _, _ = home
    with pytest.raises(FileNotFoundError):
        (folder / "no folder" / "a.txt").write_text("x")
    with pytest.raises(FileExistsError):
        (folder / "old").mkdir()
    with pytest.raises(FileExistsError):
        (folder / "notes.txt").open("x")
    with pytest.raises(FileNotFoundError):
        (folder / "none.txt").unlink()
    with pytest.raises(FileNotFoundError):
        shutil.rmtree(folder / "none")
    shutil.rmtree(folder / "none", ignore_errors=True)


def test_weights_are_saved_elsewhere_before_training_and_not_at_all_during_it(home):
    folder, _, shadow = home
    torch.save({"a": 1}, folder / "cache.pt")
    assert torch.load(folder / "cache.pt") == {"a": 1}
    shadow.is_training = True
    torch.save({"a": 2}, folder / "late.pt")
    assert not (folder / "late.pt").exists()


def test_temporary_files_and_descriptors_are_left_alone(home, tmp_path):
    _, _, shadow = home
    assert shadow.target(3) is None and shadow.target("/dev/null") is None
    shadow._temporary = str(tmp_path)
    assert shadow.target(tmp_path / "a") is None
    shadow._homes = (f"{tmp_path}/home/",)
    assert shadow.target(tmp_path / "a") is None and shadow.target(tmp_path / "home" / "a") is not None


def test_an_observation_pays_for_checkpoints_but_not_without_end(home, monkeypatch):
    folder, _, shadow = home
    shadow.is_training, shadow._saved_left = True, 1
    monkeypatch.setattr("brim.doctor.watching.file_shadow.SAVED_MOST", 0)
    torch.save({"w": torch.ones(100)}, folder / "model.pt")
    assert torch.equal(torch.load(folder / "model.pt")["w"], torch.ones(100))
    torch.save({"w": torch.zeros(100)}, folder / "model.pt")  # the first was all there was room for
    assert torch.equal(torch.load(folder / "model.pt")["w"], torch.ones(100))


def test_folders_of_the_doctors_own_are_written_to_as_they_are(tmp_path):
    shadow = FileShadow(tmp_path / "shadow", lambda: None, homes=(str(tmp_path),), own=(str(tmp_path / "compiled"),))
    assert shadow.target(tmp_path / "compiled" / "a.cpp") is None
    assert shadow.target(tmp_path / "other" / "a.cpp") is not None
