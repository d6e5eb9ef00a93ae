import os

import pytest

from brim.observe.bounded_files import first_object, last_object, last_objects, lines_of, read_object, read_text


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def test_a_file_is_read(path):
    path.write_text('{"a": 1}')
    assert read_text(path) == '{"a": 1}' and read_object(path) == {"a": 1}


@pytest.mark.parametrize("make", [lambda path: None, os.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_empty_and_nobody_waits_for_it(path, make):
    make(path)
    assert read_text(path) == "" and read_object(path) == {}
    assert list(lines_of(path)) == [] and last_objects(path) == []


def test_a_file_that_may_not_be_read_is_empty(path, monkeypatch):
    path.write_text("text")

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert read_text(path) == "" and list(lines_of(path)) == []


def test_a_file_larger_than_such_a_file_can_be_is_empty(path):
    path.write_text("x" * 101)
    assert read_text(path, most=100) == ""
    assert len(read_text(path, most=101)) == 101


def test_bytes_that_are_no_text_are_replaced(path):
    path.write_bytes(b"\xff{")
    assert read_text(path) == "�{"


def test_a_line_without_an_end_comes_in_parts(path, monkeypatch):
    monkeypatch.setattr("brim.observe.bounded_files.MOST_LINE", 4)
    path.write_bytes(b"abcdefg\nh\n")
    assert list(lines_of(path)) == [b"abcd", b"efg\n", b"h\n"]


def test_the_last_objects_are_those_of_whole_lines(path):
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"step": 4')
    assert last_objects(path) == [{"step": 1}, {"step": 2}, {"step": 3}]
    assert last_objects(path, most=30) == [{"step": 3}]  # of the second line only a part was read
    assert first_object(path) == {"step": 1} and last_object(path) == {"step": 3}


def test_of_an_empty_file_there_is_neither_a_first_nor_a_last_object(path):
    path.touch()
    assert first_object(path) == {} == last_object(path)
