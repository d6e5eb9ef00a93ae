import pytest

from brim.whole_files import flush, folder_made, written_aside


def test_a_file_has_its_name_once_it_is_whole(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    with written_aside(path) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_one_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), written_aside(path) as aside:
        aside.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_files_and_folders_are_flushed_and_a_missing_file_is_an_error(tmp_path):
    (tmp_path / "a").touch()
    flush(tmp_path / "a")
    flush(tmp_path)
    with pytest.raises(FileNotFoundError):
        flush(tmp_path / "none")


def test_folders_that_were_made_for_nothing_go_again(tmp_path):
    with folder_made(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []
    with folder_made(tmp_path / "a" / "b"):
        (tmp_path / "a" / "kept").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["kept"]
