import os
import shutil

import pytest

from brim.data.tar import opening as shard_opening
from brim.data.tar.opening import open_shards
from brim.data.tar.packing import pack
from brim.data.tar.scan import scan
from brim.errors import DataError


@pytest.fixture
def packed(tmp_path):
    pack([("text", number) for number in range(10)], tmp_path / "shards", samples_per_shard=5)
    return tmp_path / "shards"


@pytest.fixture
def foreign(packed):
    """Shards that nobody indexed."""
    for name in ("index.json", "index.npy"):
        (packed / name).unlink()
    return packed


@pytest.fixture
def scans(monkeypatch):
    """The names of the files that were scanned."""
    names = []

    def noted(path, *rest):
        names.append(path.name)
        return scan(path, *rest)

    monkeypatch.setattr(shard_opening, "scan", noted)
    return names


def fail(sentence):
    raise DataError(sentence)


def counts(folder, on_damage=fail):
    opened = open_shards(sorted(folder.glob("*.tar")), True, on_damage)
    return [len(one.shard.table) for one in opened]


def test_packed_shards_are_never_scanned_even_as_a_copy_with_other_times(packed, scans):
    for path in packed.glob("*.tar"):
        os.utime(path, (1, 1))
    assert counts(packed) == [5, 5]
    assert scans == []


def test_foreign_shards_are_scanned_once(foreign, scans):
    assert counts(foreign) == counts(foreign) == [5, 5]
    assert scans == ["shard-000000.tar", "shard-000001.tar"]
    assert (foreign / "index.json").exists()


def test_a_foreign_shard_that_has_changed_is_scanned_again(foreign, scans):
    counts(foreign)
    scans.clear()
    os.utime(foreign / "shard-000001.tar", (1, 1))
    assert counts(foreign) == [5, 5]
    assert scans == ["shard-000001.tar"]
    assert counts(foreign) == [5, 5]
    assert scans == ["shard-000001.tar"]


def test_a_folder_that_cannot_be_written_is_scanned_each_time(foreign, scans, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shard_opening, "write_index", refused)
    assert counts(foreign) == counts(foreign) == [5, 5]
    assert len(scans) == 4


def test_a_foreign_shard_beside_packed_ones_leaves_their_index_alone(packed, scans):
    shutil.copy(packed / "shard-000000.tar", packed / "z.tar")
    before = (packed / "index.json").read_bytes()
    assert counts(packed) == [5, 5, 5]
    assert scans == ["z.tar"]
    assert (packed / "index.json").read_bytes() == before


def test_a_cut_foreign_shard_is_damage_and_never_indexed_as_whole(foreign):
    path = foreign / "shard-000001.tar"
    os.truncate(path, 4000)
    said = []
    for _ in range(2):
        assert counts(foreign, said.append) == [5, 1]
    assert len(said) == 2
    assert "shard-000001.tar is damaged after 1 samples" in said[0]


def test_a_cut_packed_shard_keeps_what_lies_before_the_cut(packed):
    os.truncate(packed / "shard-000000.tar", 4000)
    said = []
    assert counts(packed, said.append) == [2, 5]
    assert "has 4,000 bytes instead of" in said[0]
    assert "lacks 3 samples, from '000000002' on" in said[0]


def test_a_packed_shard_that_has_grown_is_damage_too(packed):
    with (packed / "shard-000000.tar").open("ab") as file:
        file.write(b"more")
    with pytest.raises(DataError, match="bytes instead of"):
        counts(packed)
    assert counts(packed, lambda sentence: None) == [5, 5]


def test_a_packed_shard_that_is_missing_is_damage(packed):
    (packed / "shard-000000.tar").unlink()
    said = []
    assert counts(packed, said.append) == [5]
    assert "shard-000000.tar is missing, with 5 samples" in said[0]


def test_a_damaged_index_is_damage_and_the_shards_can_be_scanned_instead(packed, scans):
    (packed / "index.npy").write_bytes(b"")
    with pytest.raises(DataError, match=r"index\.json cannot be used"):
        counts(packed)
    said = []
    assert counts(packed, said.append) == [5, 5]
    assert (len(said), len(scans)) == (1, 2)
    assert (packed / "index.npy").read_bytes() == b""


def test_an_index_of_another_program_is_left_alone(foreign, scans):
    (foreign / "index.json").write_text('{"wids_version": 1, "shardlist": []}')
    assert counts(foreign) == counts(foreign) == [5, 5]
    assert len(scans) == 4
    assert "wids_version" in (foreign / "index.json").read_text()


def test_nothing_is_printed_where_there_is_no_terminal(foreign, capsys):
    counts(foreign)
    assert capsys.readouterr() == ("", "")


def test_a_slow_scan_shows_a_bar_in_a_terminal(foreign, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    counts(foreign)
    assert "indexing" not in capsys.readouterr().err
    (foreign / "index.json").unlink()
    monkeypatch.setattr(shard_opening, "SLOW_S", -1)
    counts(foreign)
    assert "indexing" in capsys.readouterr().err
