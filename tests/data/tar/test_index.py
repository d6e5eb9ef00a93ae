import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brim.data.tar.index import IndexedShard, ShardIndex, check_table, join, read_index, write_index
from brim.data.tar.scan import TableBuilder
from brim.errors import DataError


def shard(name="a.tar", samples=3, packed=True):
    builder = TableBuilder()
    for number in range(samples):
        start = 512 + 2048 * number
        builder.add(f"größe/{number}", [("txt", start, 100), ("cls", start + 1024, 1)], crc32=2**32 - 1 - number)
    return IndexedShard(name, 2048 * samples + 1024, "ab" * 32, ("txt", "cls"), builder.table(), None if packed else 17)


def index(*shards, packed=True):
    return ShardIndex(packed, {one.file: one for one in shards}, ("cat", "dog") if packed else ())


def same(table, other):
    return all(np.array_equal(column, other.columns()[name]) for name, column in table.columns().items())


@pytest.mark.parametrize("packed", [True, False])
def test_an_index_is_read_as_it_was_written(tmp_path, packed):
    written = index(shard("a.tar", 3, packed), shard("b.tar", 0, packed), shard("c.tar", 5, packed), packed=packed)
    write_index(tmp_path, written)
    read = read_index(tmp_path)
    assert (read.packed, read.classes) == (written.packed, written.classes)
    assert list(read.shards) == ["a.tar", "b.tar", "c.tar"]
    for name, one in written.shards.items():
        assert same(read.shards[name].table, one.table)
        assert replace(read.shards[name], table=one.table) == one
    assert read.shards["c.tar"].key(4) == "größe/4"


def test_the_json_tells_people_what_the_files_should_be(tmp_path):
    write_index(tmp_path, index(shard()))
    described = json.loads((tmp_path / "index.json").read_text())
    assert (described["format"], described["packed"], described["samples"]) == (1, True, 3)
    assert described["shards"] == [
        {"file": "a.tar", "samples": 3, "bytes": 7168, "sha256": "ab" * 32, "fields": ["txt", "cls"]}
    ]


def test_the_same_shards_give_the_same_bytes(tmp_path):
    written = []
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        write_index(tmp_path / name, index(shard()))
        written.append([(tmp_path / name / file).read_bytes() for file in ("index.json", "index.npy")])
    assert written[0] == written[1]
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["index.json", "index.npy"]


@given(st.lists(st.integers(0, 5), max_size=6))
def test_tables_that_were_joined_can_be_split_again(counts):
    tables = [shard(samples=count).table for count in counts]
    parts = join(tables).split(counts)
    assert len(join(tables)) == sum(counts)
    assert all(same(part, table) for part, table in zip(parts, tables, strict=True))


def test_a_folder_without_an_index_has_none(tmp_path):
    assert read_index(tmp_path) is None


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"format": "1", "shards": []}', '{"wids_version": 1, "shardlist": []}']
)
def test_an_index_of_another_program_is_known_as_such(tmp_path, content):
    (tmp_path / "index.json").write_text(content)
    assert read_index(tmp_path) == ShardIndex(packed=False, is_foreign=True)


@pytest.mark.parametrize("content", ["{", "", "\udcff"])
def test_a_json_that_cannot_be_read_is_one_sentence(tmp_path, content):
    (tmp_path / "index.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(
        DataError, match=r"index\.json cannot be used .*, and without it the shards would have to be scanned"
    ):
        read_index(tmp_path)


def test_an_index_of_a_newer_brim_is_refused(tmp_path):
    (tmp_path / "index.json").write_text('{"format": 2, "shards": []}')
    with pytest.raises(DataError, match="newer version of brim"):
        read_index(tmp_path)


def spoil_table(folder):
    content = bytearray((folder / "index.npy").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "index.npy").write_bytes(content)


def test_a_damaged_table_of_packed_shards_is_one_sentence(tmp_path):
    write_index(tmp_path, index(shard()))
    spoil_table(tmp_path)
    with pytest.raises(DataError, match=r"index\.npy is not the one it was written with"):
        read_index(tmp_path)


def test_a_damaged_table_of_scanned_shards_is_no_index(tmp_path):
    write_index(tmp_path, index(shard(packed=False), packed=False))
    spoil_table(tmp_path)
    assert read_index(tmp_path) is None


@pytest.mark.parametrize(
    ("column", "value"),
    [("offset", -1), ("offset", 1 << 62), ("size", 1 << 62), ("size", -1), ("start", 5000), ("start", -1),
     ("length", 1 << 62), ("field", 2), ("field", -1), ("members", 1), ("members", -1), ("key_size", 100)],
)  # fmt: skip
def test_a_table_that_points_outside_its_file_is_refused(column, value):
    one = shard()
    check_table(one.table, one.bytes, 2, 3)
    spoiled = getattr(one.table, column).copy()
    spoiled[0] = value
    with pytest.raises(ValueError):
        check_table(replace(one.table, **{column: spoiled}), one.bytes, 2, 3)
