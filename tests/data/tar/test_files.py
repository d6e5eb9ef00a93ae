import os
import pickle
from pathlib import Path

import pytest

from brim.data.tar.files import OpenFiles, expand_braces, find_files
from brim.errors import DataError


@pytest.fixture
def folder(tmp_path):
    for name in ("b-0.tar", "a-1.tar", "a-0.tar", ".hidden.tar", "notes.txt"):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def names(paths):
    return [path.name for path in paths]


def test_a_folder_stands_for_its_tar_files_by_name(folder):
    assert names(find_files(folder)) == ["a-0.tar", "a-1.tar", "b-0.tar"]
    assert names(find_files(str(folder))) == ["a-0.tar", "a-1.tar", "b-0.tar"]


def test_braces_wildcards_and_lists_name_files_in_their_order(folder):
    assert names(find_files(f"{folder}/{{b,a}}-{{0..0}}.tar")) == ["b-0.tar", "a-0.tar"]
    assert names(find_files(f"{folder}/a-*.tar")) == ["a-0.tar", "a-1.tar"]
    assert names(find_files([folder / "b-0.tar", f"{folder}/a-?.tar"])) == ["b-0.tar", "a-0.tar", "a-1.tar"]


def test_a_name_with_braces_of_its_own_is_taken_as_it_is(folder):
    (folder / "{x}.tar").touch()
    assert names(find_files(folder / "{x}.tar")) == ["{x}.tar"]


@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        ("a-{08..11}", ["a-08", "a-09", "a-10", "a-11"]),
        ("a-{9..10}", ["a-9", "a-10"]),
        ("a-{000..001}{x,y}", ["a-000x", "a-000y", "a-001x", "a-001y"]),
        ("plain", ["plain"]),
    ],
)
def test_braces_expand_as_in_a_shell(pattern, expanded):
    assert list(expand_braces(pattern)) == expanded


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("", "the pattern of shards is empty"),
        ([], "the list of shards is empty"),
        ("nothing-*.tar", "no shard is found at nothing-\\*.tar"),
        ("nothing-{0..1}.tar", "no shard is found at nothing-0.tar"),
        ("a-{5..1}.tar", "counts backwards or too far"),
        ("a-{0..99999999999}.tar", "counts backwards or too far"),
        ("https://example.org/a.tar", "is not a file; brim reads shards from disks"),
        ("pipe:cat a.tar", "is not a file; brim reads shards from disks"),
    ],
)
def test_a_source_that_names_no_file_is_one_sentence(source, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=sentence):
        find_files(source)


def test_a_folder_without_shards_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match=r"holds no \.tar file"):
        find_files(tmp_path)


def test_a_folder_whose_packing_was_killed_is_refused(folder):
    (folder / ".packing").mkdir()
    with pytest.raises(DataError, match=r"packing into .* was not finished; pack again with force"):
        find_files(folder)


def test_bytes_are_read_where_they_are_asked_for(folder):
    files = OpenFiles(find_files(folder))
    assert (files.read(0, 0, 3), files.read(2, 2, 3), files.read(1, 5, 10)) == (b"a-0", b"0.t", b"ar")


def test_no_more_files_stay_open_than_allowed(folder, monkeypatch):
    monkeypatch.setattr("brim.data.tar.files.MOST_OPEN", 2)
    files = OpenFiles(find_files(folder))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        assert [files.read(number, 0, 3) for number in range(3)] == [b"a-0", b"a-1", b"b-0"]
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 2


def test_a_fork_opens_files_of_its_own(folder, monkeypatch):
    files = OpenFiles(find_files(folder))
    files.read(0, 0, 3)
    inherited = files._open[0]
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert files.read(0, 0, 3) == b"a-0"
    assert files._open[0] is not inherited


def test_a_pickled_copy_has_nothing_open_and_reads_the_same(folder):
    files = OpenFiles(find_files(folder))
    files.read(0, 0, 3)
    copy = pickle.loads(pickle.dumps(files))
    assert copy._open == {}
    assert copy.read(0, 0, 3) == b"a-0"
