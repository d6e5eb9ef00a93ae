import json

import pytest

from brim.engine.checkpoints.whole_folder import CHECKSUMS, WholeFolder, damage, former


def write(path, **files):
    with WholeFolder(path) as aside:
        for name, text in files.items():
            (aside / name).write_text(text)


def test_a_folder_appears_whole_with_the_checksums_of_its_files(tmp_path):
    write(tmp_path / "made", a="1", b="2")
    assert {file.name for file in (tmp_path / "made").iterdir()} == {"a", "b", CHECKSUMS}
    assert damage(tmp_path / "made") is None
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_what_fails_on_the_way_leaves_what_was_there(tmp_path):
    write(tmp_path / "made", a="1")
    with pytest.raises(ValueError, match="half way"), WholeFolder(tmp_path / "made") as aside:
        (aside / "a").write_text("2")
        raise ValueError("half way")
    assert (tmp_path / "made" / "a").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_full_disk_while_flushing_leaves_what_was_there(tmp_path, monkeypatch):
    write(tmp_path / "made", a="1")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("brim.whole_files.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "made", a="2")
    assert (tmp_path / "made" / "a").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_replacing_leaves_no_moment_without_either(tmp_path, monkeypatch):
    path = tmp_path / "made"
    write(path, a="1")
    rename, seen = type(path).rename, []

    def watched(self, target):
        seen.append([p.name for p in (path, former(path)) if p.exists()])
        return rename(self, target)

    monkeypatch.setattr(type(path), "rename", watched)
    write(path, a="2")
    assert seen == [["made"], [".made.old"]]
    assert (path / "a").read_text() == "2"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "a").write_text("x"), "a is not what was written"),
        (lambda folder: (folder / "a").unlink(), "a is missing"),
        (lambda folder: (folder / CHECKSUMS).write_text("{"), "cannot be read"),
        (lambda folder: (folder / CHECKSUMS).write_text("[1]"), "cannot be read"),
        (lambda folder: (folder / CHECKSUMS).write_text(json.dumps({"../../etc/passwd": "0"})), "missing"),
    ],
)
def test_damage_is_told_by_its_file(tmp_path, spoil, said):
    write(tmp_path / "made", a="1")
    spoil(tmp_path / "made")
    assert said in damage(tmp_path / "made")


def test_a_folder_without_checksums_is_taken_as_it_is(tmp_path):
    assert damage(tmp_path) is None
