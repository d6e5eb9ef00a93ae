import json
import subprocess
import sys

import pytest
from helpers.command import Command

from brim.cli.init import project_files
from brim.config import load_config

FILES = ["config.yaml", "data.py", "model.py", "test_train.py", "train.py"]


@pytest.fixture
def brim(monkeypatch, capsys):
    return Command(monkeypatch, capsys)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def run(folder, *command):
    """A command in the project, with nothing of these tests around it."""
    return subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True)


def test_the_project_is_written_and_the_next_steps_are_named(tmp_path, brim):
    done = brim(tmp_path, "init")
    assert (done.returncode, done.stderr) == (0, "")
    assert names(tmp_path) == FILES == sorted(project_files())
    assert done.stdout.splitlines()[:5] == [f"wrote {name}" for name in FILES]
    assert "  brim train config.yaml" in done.stdout.splitlines()


@pytest.mark.slow
def test_it_trains_as_it_is_and_its_test_passes(tmp_path, brim):
    """In processes of its own, as its user runs it: its files have names that are common."""
    assert brim(tmp_path, "init").returncode == 0
    done = run(tmp_path, "brim", "train", "config.yaml", "trainer.device=cpu", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["test"]["Classifier"]["loss"] < 0.3
    done = run(tmp_path, "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_all_its_settings_are_known(tmp_path, brim, monkeypatch):
    brim(tmp_path, "init")
    monkeypatch.chdir(tmp_path)
    assert load_config("config.yaml").params == {"hidden": 32, "dropout": 0.0}


def test_a_folder_can_be_named_and_is_made(tmp_path, brim):
    done = brim(tmp_path, "init", "a/b")
    assert names(tmp_path / "a/b") == FILES
    assert "cd a/b && brim train config.yaml" in done.stdout


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_overwritten_and_nothing_else_is_written_then(tmp_path, brim, name):
    (tmp_path / name).write_text("mine")
    (tmp_path / "other.txt").write_text("mine too")
    done = brim(tmp_path, "init")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"brim: {name} exists and is not overwritten")
    assert names(tmp_path) == sorted([name, "other.txt"])
    assert (tmp_path / name).read_text() == "mine"


def test_other_files_are_no_obstacle(tmp_path, brim):
    (tmp_path / "other.txt").write_text("mine")
    assert brim(tmp_path, "init").returncode == 0
    assert names(tmp_path) == sorted([*FILES, "other.txt"])


def test_a_link_to_nowhere_is_not_written_through(tmp_path, brim):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/model.py").symlink_to(tmp_path / "elsewhere.py")
    assert brim(tmp_path / "a", "init").returncode == 2
    assert not (tmp_path / "elsewhere.py").exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path, brim):
    (tmp_path / "file").write_text("")
    done = brim(tmp_path, "init", "file/project")
    assert done.returncode == 2
    assert "cannot write the example project to" in done.stderr
    assert names(tmp_path) == ["file"]
