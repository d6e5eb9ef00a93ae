import io
import json
import os
import pickle
import tarfile
import zlib

import numpy as np
import pytest
import torch

from brim.data.tar import Shards, pack
from brim.errors import DataError

END = bytes(2 * tarfile.BLOCKSIZE)


def everything(folder, **options):
    shards = Shards(folder, **options)
    return [shards[number] for number in range(len(shards))]


# Fields that hold code


def npy_of_objects(trap):
    content = io.BytesIO()
    np.save(content, np.array([trap], dtype=object), allow_pickle=True)
    return content.getvalue()


def saved_by_torch(trap):
    content = io.BytesIO()
    torch.save({"x": trap}, content)
    return content.getvalue()


CODE = {
    "x.pkl": (pickle.dumps, pickle.loads),
    "x.pickle": (pickle.dumps, pickle.loads),
    "x.pyd": (pickle.dumps, pickle.loads),
    "x.npy": (npy_of_objects, lambda content: np.load(io.BytesIO(content), allow_pickle=True)),
    "x.pt": (saved_by_torch, lambda content: torch.load(io.BytesIO(content), weights_only=False)),
    "x.pth": (pickle.dumps, pickle.loads),
    "x.safetensors": (pickle.dumps, pickle.loads),
    "x.json": (pickle.dumps, pickle.loads),
}


@pytest.mark.parametrize("field", CODE)
def test_code_in_a_field_does_not_run(tmp_path, trap, field):
    write, unsafe_read = CODE[field]
    unsafe_read(write(trap))
    assert trap.has_sprung  # the payload is alive
    pack([{field: write(trap)}], tmp_path / "shards")
    for with_index in (True, False):
        with pytest.raises(DataError, match=r"is a pickle|cannot be decoded"):
            everything(tmp_path / "shards")
        if with_index:
            (tmp_path / "shards" / "index.json").unlink()
    assert not trap.has_sprung


def test_code_in_a_field_runs_for_those_who_asked_for_pickles(tmp_path, trap):
    """The field is found, and it is the refusal that keeps it from running."""
    pack([{"x.pkl": pickle.dumps(trap)}], tmp_path / "shards")
    everything(tmp_path / "shards", allow_pickle=True)
    assert trap.has_sprung


# An index that lies


@pytest.fixture
def folder(tmp_path):
    pack([{"txt": f"text {number}", "cls": number} for number in range(3)], tmp_path / "shards")
    return tmp_path / "shards"


def columns_of(folder):
    content = (folder / "index.npy").read_bytes()
    stream, columns = io.BytesIO(content), []
    while stream.tell() < len(content):
        columns.append(np.load(stream))
    names = ["offset", "size", "crc32", "members", "key_size", "start", "length", "field", "keys"]
    return dict(zip(names, columns, strict=True))


def put_table(folder, content, **facts):
    """Another table, with a sum to match, and other facts about the one shard."""
    (folder / "index.npy").write_bytes(content)
    described = json.loads((folder / "index.json").read_text())
    described["table"]["crc32"] = zlib.crc32(content)
    described["shards"][0] |= facts
    (folder / "index.json").write_text(json.dumps(described))


def put_columns(folder, columns, **facts):
    content = io.BytesIO()
    for column in columns.values():
        np.save(content, column)
    put_table(folder, content.getvalue(), **facts)


def test_a_table_written_anew_is_read(folder):
    """The refusals below are not of the way in which tables are put here."""
    put_columns(folder, columns_of(folder))
    assert [sample["cls"] for sample in everything(folder)] == [0, 1, 2]


def test_an_index_that_claims_billions_of_members_takes_no_memory_for_them(folder):
    columns = columns_of(folder)
    columns["members"][:] = 2**31 - 1
    put_columns(folder, columns)
    with pytest.raises(DataError, match="another number of members"):
        everything(folder)


def test_a_sample_that_claims_more_than_its_file_takes_no_memory_for_it(folder):
    columns = columns_of(folder)
    columns["size"][0] = 2**41
    put_columns(folder, columns, bytes=2**42)
    with pytest.raises(DataError, match="lacks 3 samples"):
        everything(folder)
    with pytest.warns(UserWarning, match="lacks 3 samples"), pytest.raises(DataError, match="no sample is found"):
        everything(folder, on_damage="skip")


@pytest.mark.parametrize("header", [b"(((((((((((", b"'''\\\n   '\"", b"{'descr': '|O'", b"\xff\0\xff\0"])
def test_a_table_with_a_header_that_is_none_is_refused(folder, header):
    content = (folder / "index.npy").read_bytes()
    start = content.index(b"{")
    put_table(folder, content[:start] + header + content[start + len(header) :])
    with pytest.raises(DataError, match="cannot be used"):
        everything(folder)


def test_a_table_of_objects_runs_nothing(folder, trap):
    content = npy_of_objects(trap)
    np.load(io.BytesIO(content), allow_pickle=True)
    assert trap.has_sprung
    put_table(folder, content)
    with pytest.raises(DataError, match="cannot be used"):
        everything(folder)
    assert not trap.has_sprung


@pytest.mark.parametrize(
    "facts",
    [{"file": 5}, {"file": None}, {"file": 1.5}, {"file": []}, {"file": "../x.tar"}, {"file": "a\0b"}, {"fields": 5},
     {"fields": None}, {"samples": -1}, {"samples": 2}, {"samples": 10**30}, {"samples": "3"}, {"bytes": -1},
     {"bytes": 10**30}, {"bytes": None}],
    ids=str,
)  # fmt: skip
def test_facts_that_cannot_be_are_refused(folder, facts):
    put_table(folder, (folder / "index.npy").read_bytes(), **facts)
    with pytest.raises(DataError):
        everything(folder)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": ' * 100_000, '{"format": 1, "packed": true, "shards": 5}'])
def test_an_index_of_any_shape_is_one_sentence(folder, text):
    (folder / "index.json").write_text(text)
    with pytest.raises(DataError, match=r"index\.json cannot be used"):
        everything(folder)


# A tar that lies


def header(name, size=0, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def without_index(tmp_path, content):
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "a.tar").write_bytes(content)
    return tmp_path / "shards"


def plain_sample(name="first.txt"):
    return header(name, 3) + b"one".ljust(tarfile.BLOCKSIZE, b"\0")


def test_a_tar_without_an_index_is_read(tmp_path):
    assert everything(without_index(tmp_path, plain_sample() + END)) == [{"__key__": "first", "txt": "one"}]


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
@pytest.mark.parametrize("size", [2**45, 2**62, 2**80])
@pytest.mark.parametrize("first", [b"", plain_sample()], ids=["alone", "after a sample"])
def test_a_header_that_claims_more_than_memory_is_refused(tmp_path, kind, size, first):
    content = first + header("a", size, kind) + plain_sample("b.txt") + END
    with pytest.raises(DataError):
        everything(without_index(tmp_path, content))


@pytest.mark.parametrize("first", [b"", plain_sample()], ids=["alone", "after a sample"])
def test_names_that_follow_names_without_end_are_refused(tmp_path, first):
    name = header("././@LongLink", 2, tarfile.GNUTYPE_LONGNAME) + b"a".ljust(tarfile.BLOCKSIZE, b"\0")
    with pytest.raises(DataError):
        everything(without_index(tmp_path, first + 3000 * name + plain_sample() + END))


def test_every_header_of_a_sample_of_very_many_members_is_read_once(tmp_path, monkeypatch):
    read, headers = tarfile.TarInfo.frombuf, []
    monkeypatch.setattr(tarfile.TarInfo, "frombuf", lambda *arguments: headers.append(1) or read(*arguments))
    content = b"".join(header(f"a.f{number}") for number in range(20_000)) + END
    assert len(everything(without_index(tmp_path, content))[0]) == 20_001
    assert 20_000 <= len(headers) <= 20_002  # those of the end, too


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_is_not_read(tmp_path, make):
    make(tmp_path / "a.tar")
    with pytest.raises(DataError, match=r"a\.tar: it is not a file"):
        Shards(tmp_path)


def test_reading_writes_nothing_but_the_index(tmp_path):
    members = [plain_sample(name) for name in ("a.txt", "deep/er/b.txt", "c.sh", "index.json.txt", "__init__.py")]
    folder = without_index(tmp_path, b"".join(members) + END)
    everything(folder)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.tar", "index.json", "index.npy", "shards"]
