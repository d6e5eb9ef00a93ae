import sys

import pytest
from helpers.projects import fresh_imports

from brim.config.workload_code import WorkloadCode, names_code
from brim.errors import ConfigError, ModelError


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with fresh_imports():
        yield folder


@pytest.mark.parametrize(
    ("written", "place", "function"),
    [
        ("train.py", "train.py", "build"),
        ("train.py:make", "train.py", "make"),
        ("a/b.py:make", "a/b.py", "make"),
        ("project.train:build", "project.train", "build"),
    ],
)
def test_a_file_or_a_module_and_its_function(written, place, function):
    code = WorkloadCode.parse(written)
    assert names_code(written)
    assert (code.place, code.function) == (place, function)


@pytest.mark.parametrize("written", ["recommender", "vision", "", "train", 3, None, ["a:b"]])
def test_what_names_no_code(written):
    assert not names_code(written)


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ("/etc/train.py:build", "below the working directory, without '..'"),
        ("../train.py:build", "below the working directory, without '..'"),
        ("a/../../train.py", "below the working directory, without '..'"),
        ("C:\\train.py:build", "below the working directory, without '..'"),
        ("a\0.py:build", "below the working directory"),
        ("train.py:", "names no function"),
        ("train.py:a.b", "names no function"),
        ("train.py:a()", "names no function"),
        (":build", "names no module"),
        ("..train:build", "names no module"),
        ("my-project:build", "names no module"),
        ("os:system", "os is Python's own"),
        ("subprocess:run", "subprocess is Python's own"),
        ("importlib.machinery:build", "importlib is Python's own"),
        ("builtins:eval", "builtins is Python's own"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_before_anything_is_imported(written, part):
    before = set(sys.modules)
    with pytest.raises(ConfigError) as refused:
        WorkloadCode.parse(written)
    assert part in str(refused.value)
    assert set(sys.modules) == before


def test_a_file_with_its_neighbours_is_imported_from_the_working_directory(in_empty_folder):
    (in_empty_folder / "a").mkdir()
    (in_empty_folder / "a/widths_of_mine.py").write_text("WIDTH = 7\n")
    (in_empty_folder / "a/train.py").write_text("from widths_of_mine import WIDTH\n\ndef build(): return WIDTH\n")
    assert WorkloadCode.parse("a/train.py:build").load()() == 7


def test_a_module_of_a_package_in_the_working_directory(in_empty_folder):
    (in_empty_folder / "project_of_mine").mkdir()
    (in_empty_folder / "project_of_mine/train.py").write_text("def build(): return __name__\n")
    assert WorkloadCode.parse("project_of_mine.train:build").load()() == "project_of_mine.train"


def test_a_file_is_imported_once_under_its_own_name_so_that_its_classes_can_be_pickled(in_empty_folder):
    (in_empty_folder / "mine_alone.py").write_text("class Data: pass\n\ndef build(): return Data\n")
    first, second = (WorkloadCode.parse("mine_alone.py").load()() for _ in range(2))
    assert first is second
    assert first.__module__ == "mine_alone"


@pytest.mark.parametrize("name", ["random", "torch", "yaml"])
def test_a_file_named_as_a_module_that_exists_is_itself_and_leaves_the_other_alone(in_empty_folder, name):
    __import__(name)
    module = sys.modules[name]
    (in_empty_folder / f"{name}.py").write_text("def build(): return 'mine'\n")
    assert WorkloadCode.parse(f"{name}.py").load()() == "mine"
    assert sys.modules[name] is module


@pytest.mark.parametrize(
    ("text", "error", "part"),
    [
        ("build = 3\n", ConfigError, "'build' is an int; name a function"),
        ("class build: pass\n", ConfigError, "'build' is a type; name a function"),
        ("", ConfigError, "'build' is not there; name a function"),
        ("from os import system as build\n", ConfigError, "is a builtin_function_or_method"),
        ("from shutil import rmtree as build\n", ConfigError, "is Python's own shutil"),
        ("from subprocess import run as build\n", ConfigError, "is Python's own subprocess"),
        ("import nowhere_to_be_found\n", ModelError, "nowhere_to_be_found"),
        ("def build(:\n", ModelError, "train.py:1"),
        ("raise ValueError('no data here')\n", ModelError, "importing train.py failed"),
        ("import sys\nsys.exit(3)\n", ConfigError, "under if __name__ == '__main__':"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(in_empty_folder, text, error, part):
    (in_empty_folder / "train.py").write_text(text)
    with pytest.raises(error) as refused:
        WorkloadCode.parse("train.py:build").load()
    assert part in str(refused.value)
    assert ("train" in sys.modules) == ("'build' is" in str(refused.value))  # not where its code has failed half-way


@pytest.mark.parametrize(("written", "part"), [("nowhere.py", "there is no file nowhere.py in"),
                                               ("nowhere.train:build", "there is no module 'nowhere'"),
                                               ("x" * 300 + ".py", "")])  # fmt: skip
def test_what_is_not_there_is_one_sentence(written, part):
    with pytest.raises(ConfigError) as refused:
        WorkloadCode.parse(written).load()
    assert part in str(refused.value)
