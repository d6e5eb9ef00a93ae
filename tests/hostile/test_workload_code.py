"""Code that a configuration names: run where the user named that configuration, and only from where it may lie."""

import sys

import pytest
from helpers.command import Command
from helpers.projects import fresh_imports

import brim
from brim.config import load_config
from brim.config.workload import open_workload
from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.errors import ConfigError, RunFolderError
from brim.record import RunFolder, write_report
from brim.workloads.recommender import BPR


@pytest.fixture
def work(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with fresh_imports():
        yield folder


@pytest.fixture
def command(monkeypatch, capsys):
    return Command(monkeypatch, capsys)


def payload(trap) -> str:
    """A file that makes a folder as soon as it is imported."""
    return f"import os\nos.mkdir({str(trap.trace)!r})\n\ndef build():\n    return None\n"


def is_alive(trap, name) -> bool:
    """Whether the payload runs where it may: named by the user, in the working directory."""
    with pytest.raises(ConfigError, match="returned nothing"):
        open_workload(load_config(None, [f"workload={name}"])).run()
    sys.modules.pop("evil", None)
    return trap.has_sprung


def run_folder(work, workload) -> RunFolder:
    folder = RunFolder.create(work / "downloaded")
    folder.write("config.yaml", f"workload: {workload}\ntrainer: {{device: cpu}}\n")
    Checkpoints(folder.checkpoints, keep=1).save_best(BPR(3, 4, 2), 5)
    return folder


def refused(workload) -> str:
    with pytest.raises(ConfigError) as refusal:
        open_workload(load_config(None, [f"workload={workload}"])).run()
    return str(refusal.value)


# Run folders from elsewhere


@pytest.mark.parametrize("name", ["downloaded/evil.py:build", "evil.py:build", "evil:build"])
def test_a_run_folder_that_names_code_runs_none_of_it(work, trap, command, name):
    folder = run_folder(work, name)
    for place in (work / "evil.py", folder.path / "evil.py"):
        place.write_text(payload(trap))
    assert is_alive(trap, name)
    done = command(work, "train", "--resume", "downloaded")
    assert done.returncode == 2
    assert f"downloaded/config.yaml names code to run, workload='{name}'" in done.stderr
    assert "--trust" in done.stderr
    for further in (["--show-config"], ["--slurm"], ["--ranks", "2"], ["trainer.epochs=3"]):
        command(work, "train", "--resume", "downloaded", *further)
    assert name in write_report(folder).read_text()
    with pytest.raises(RunFolderError, match="a model of your own; build it and pass it"):
        brim.load(folder.path)
    command(work, "checkpoint", "export", "downloaded")
    assert not trap.has_sprung


def test_a_trusted_run_folder_runs_its_code_and_so_does_one_with_a_configuration_of_the_users(work, trap, command):
    run_folder(work, "evil.py:build")
    (work / "evil.py").write_text(payload(trap))
    command(work, "train", "--resume", "downloaded", "--trust")
    assert trap.has_sprung
    sys.modules.pop("evil")
    (work / "mine.yaml").write_text("workload: evil.py:build\n")
    command(work, "train", "mine.yaml", "--resume", "downloaded")
    assert trap.has_sprung
    sys.modules.pop("evil")
    command(work, "train", "workload=evil.py:build", "--resume", "downloaded")
    assert trap.has_sprung


# Places


@pytest.mark.parametrize("name", ["../evil.py:build", "a/../../evil.py:build", "{}/evil.py:build", "./../evil.py"])
def test_a_file_elsewhere_is_not_run(work, trap, name):
    (work.parent / "evil.py").write_text(payload(trap))
    (work / "evil.py").write_text(payload(trap))
    assert is_alive(trap, "evil.py:build")
    assert "below the working directory" in refused(name.format(work.parent))
    assert not trap.has_sprung


def test_a_link_to_a_file_elsewhere_is_not_run(work, trap):
    (work.parent / "evil.py").write_text(payload(trap))
    (work / "evil.py").symlink_to(work.parent / "evil.py")
    assert "outside the working directory" in refused("evil.py:build")
    assert "is a link out of the working directory" in refused("evil:build")
    assert not trap.has_sprung


@pytest.mark.parametrize("name", ["linked/evil.py:build", "linked.evil:build", "whole.linked.evil:build"])
def test_a_link_to_a_folder_elsewhere_is_not_run(work, trap, name):
    elsewhere = work.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "evil.py").write_text(payload(trap))
    (elsewhere / "__init__.py").write_text(payload(trap))
    (work / "linked").symlink_to(elsewhere)
    (work / "whole").mkdir()
    (work / "whole/linked").symlink_to(elsewhere)
    assert "out" in refused(name)
    assert not trap.has_sprung


def test_a_link_within_the_working_directory_is_followed(work, trap):
    (work / "a").mkdir()
    (work / "a/evil.py").write_text(payload(trap))
    (work / "evil.py").symlink_to(work / "a/evil.py")
    assert is_alive(trap, "evil.py:build")


def test_links_in_a_ring_are_one_sentence(work):
    (work / "a.py").symlink_to(work / "b.py")
    (work / "b.py").symlink_to(work / "a.py")
    assert refused("a.py:build")


def test_a_file_beside_the_configuration_is_not_meant_but_the_one_in_the_working_directory(work, trap):
    (work / "downloaded").mkdir()
    (work / "downloaded/evil.py").write_text(payload(trap))
    (work / "downloaded/c.yaml").write_text("workload: evil.py:build\n")
    with pytest.raises(ConfigError, match=r"there is no file evil\.py in .*files are named from the working directory"):
        open_workload(load_config("downloaded/c.yaml"))
    assert not trap.has_sprung


# Objects


@pytest.mark.parametrize(
    "name",
    ["os:system", "os:mkdir", "posix:mkdir", "subprocess:run", "shutil:rmtree", "builtins:exec", "runpy:run_path"],
)
def test_what_python_itself_can_do_is_not_called(work, trap, name):
    with pytest.raises(ConfigError, match="is Python's own"):
        load_config(None, [f"workload={name}", f"params.path={trap.trace}"])
    assert not trap.has_sprung


@pytest.mark.parametrize("name", ["mkdir", "makedirs", "copytree", "path", "os"])
def test_what_a_file_has_imported_from_python_is_not_called(work, trap, name):
    text = "import os\nfrom os import mkdir, makedirs, path\nfrom shutil import copytree\n"
    (work / "mine.py").write_text(text)
    with pytest.raises(ConfigError, match="name a function"):
        open_workload(load_config(None, [f"workload=mine.py:{name}", f"params.name={trap.trace}"]))
    assert not trap.has_sprung


@pytest.mark.parametrize("name", ["__builtins__", "os.mkdir", "__import__('os')", "build()", "build;x", "a b", ""])
def test_only_a_name_can_be_named(name):
    with pytest.raises(ConfigError):
        open_workload(load_config(None, [f"workload='mine.py:{name}'".replace("''", "")]))


def test_parameters_of_a_configuration_are_data(work, trap):
    (work / "mine.py").write_text("def build(path: str): raise ValueError(path)\n")
    with pytest.raises(ConfigError, match="python/object/apply"):
        load_config(None, ["workload=mine.py", f"params.path=!!python/object/apply:os.mkdir ['{trap.trace}']"])
    assert not trap.has_sprung
