import glob
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import safetensors.torch
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
    real, read = os.listdir, open
    shadow = FileShadow(tmp_path / "shadow", lambda: None)
    shadow.tree._temporary = "/nowhere"
    with monkeypatch.context():
        shadow.install()
        home = folder
        home_files = lambda: sorted(real(str(folder)))  # noqa: E731
        yield home, home_files, shadow
    assert home_files() == ["notes.txt", "old"] and real(str(folder / "old")) == ["model.pt"]
    assert read(folder / "notes.txt").read() == "mine"


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


def test_weights_are_saved_elsewhere_before_training_and_once_during_it(home):
    folder, _, shadow = home
    torch.save({"a": 1}, folder / "cache.pt")
    assert torch.load(folder / "cache.pt") == {"a": 1}
    shadow.is_training = True
    for value in (2, 3):
        torch.save({"a": value}, folder / "late.pt")
    assert torch.load(f=folder / "late.pt") == {"a": 2}
    torch.save({"a": 4}, folder / "late.tmp")
    os.replace(folder / "late.tmp", folder / "late.pt")
    assert torch.load(folder / "late.pt", mmap=True) == {"a": 4}


def test_what_safetensors_reads_by_itself_is_what_was_written(home):
    folder, _, _ = home
    safetensors.torch.save_file(tensors={"w": torch.ones(2)}, filename=folder / "model.safetensors")
    safetensors.torch.save_model(torch.nn.Linear(1, 1), f"{folder}/linear.safetensors")
    assert torch.equal(safetensors.torch.load_file(folder / "model.safetensors")["w"], torch.ones(2))
    with safetensors.safe_open(filename=folder / "linear.safetensors", framework="pt") as file:
        assert sorted(file.keys()) == ["bias", "weight"]


def test_an_observation_pays_for_checkpoints_but_not_without_end(home, monkeypatch):
    folder, _, shadow = home
    shadow.is_training, shadow._saved_left = True, 1
    monkeypatch.setattr("brim.doctor.watching.file_shadow.SAVED_MOST", 0)
    torch.save({"w": torch.ones(100)}, folder / "model.pt")
    assert torch.equal(torch.load(folder / "model.pt")["w"], torch.ones(100))
    torch.save({"w": torch.zeros(100)}, folder / "model.pt")  # the first was all there was room for
    assert torch.equal(torch.load(folder / "model.pt")["w"], torch.ones(100))
    torch.save({}, folder / "model.tmp")
    os.replace(folder / "model.tmp", folder / "model.pt")
    assert (folder / "model.pt").stat().st_size == 0


def test_folders_show_no_file_that_was_deleted(home):
    folder, _, _ = home
    (folder / "old" / "model.pt").unlink()
    assert list(os.scandir(folder / "old")) == [] and list((folder / "old").glob("*")) == []
    assert [files for _, _, files in os.walk(folder / "old")] == [[]]
    (folder / "old").rmdir()
    assert [path.name for path in folder.iterdir()] == ["notes.txt"] == [entry.name for entry in os.scandir(folder)]


def test_a_script_works_in_a_folder_that_it_has_made(home, monkeypatch):
    """As Hydra has it: outputs/DATE is made, and gone to, and the data are read from where the script is."""
    folder, _, _ = home
    monkeypatch.chdir(folder)
    os.makedirs("outputs/1")
    os.chdir("outputs/1")
    assert os.getcwd() == f"{folder}/outputs/1" and Path("../../notes.txt").read_text() == "mine"
    Path("log.txt").write_text("1")
    assert os.listdir() == ["log.txt"] and sorted(os.listdir("../..")) == ["notes.txt", "old", "outputs"]
    os.chdir("../..")
    assert os.getcwd() == str(folder) and Path("outputs/1/log.txt").read_text() == "1"


def test_folders_of_the_users_are_moved_by_name_only(home):
    folder, _, _ = home
    (folder / "old").rename(folder / "older")
    assert (folder / "older" / "model.pt").read_text() == "weights" and not (folder / "old").exists()
    (folder / "older" / "more.pt").write_text("more")
    assert sorted(os.listdir(folder / "older")) == ["model.pt", "more.pt"]


def test_through_links_of_the_scripts_nothing_of_the_users_is_written(home):
    folder, _, _ = home
    for source in (folder / "old", "old"):
        os.symlink(source, folder / "latest")
        assert (folder / "latest" / "model.pt").read_text() == "weights"
        (folder / "latest" / "new.pt").write_text("new")
        assert (folder / "old" / "new.pt").read_text() == "new"
        (folder / "latest").unlink()
        assert not (folder / "latest").exists() and (folder / "old" / "model.pt").exists()
    os.link(folder / "notes.txt", folder / "second.txt")
    with (folder / "second.txt").open("a") as file:
        file.write(" too")
    assert (folder / "notes.txt").read_text() == "mine"


def test_files_are_touched_and_folders_deleted_as_the_system_would(home):
    folder, _, shadow = home
    (folder / "empty.txt").touch()
    assert (folder / "empty.txt").stat().st_size == 0
    with pytest.raises(OSError, match="not empty"):
        (folder / "old").rmdir()
    with pytest.raises(IsADirectoryError):
        (folder / "old").unlink()
    with tempfile.TemporaryFile(dir=folder) as nameless:
        nameless.write(b"1")
    assert not os.path.exists(shadow.tree.target(folder / "old" / "model.pt"))  # a whole folder is not copied for that
    with tempfile.NamedTemporaryFile("w", dir=folder) as file:
        file.write("1")
    assert not os.path.exists(file.name)
