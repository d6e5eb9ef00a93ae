import io
import zipfile
from dataclasses import replace

import pytest

from brim.errors import DataError
from brim.workloads.recommender import ML1MDataset
from brim.workloads.recommender import download as module
from brim.workloads.recommender.download import SOURCES, check_sum, fetch, unpack

ML_1M = SOURCES["ml-1m"]


def archive_of(content=b"x", method=zipfile.ZIP_DEFLATED):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as archive:
        for name in ML_1M.files:
            archive.writestr(f"ml-1m/{name}", content)
    return bytearray(written.getvalue())


# The archive


def test_an_archive_that_would_fill_the_memory_is_refused_by_its_sum_before_it_is_unpacked():
    bomb = archive_of(bytes(10_000_000))
    assert len(bomb) < 100_000  # it does grow, a hundred times and more
    with pytest.raises(DataError, match="has the MD5 sum"):
        check_sum(ML_1M, bytes(bomb))


def test_a_server_that_never_stops_sending_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    (tmp_path / "endless").write_bytes(bytes(3 << 20))
    source = replace(ML_1M, url=(tmp_path / "endless").as_uri())
    told = []
    with pytest.raises(DataError, match="it does not end after 1,048,576 bytes"):
        fetch(source, lambda done, total: told.append(done))
    assert told[-1] < 2 << 20


@pytest.mark.parametrize(
    ("offset", "value"),
    [(6, 1), (8, 97), (8, 14), (8, 12), (8, 99)],
    ids=["encrypted", "an unknown method", "LZMA that is none", "bzip2 that is none", "another encryption"],
)
def test_a_member_that_cannot_be_unpacked_is_one_sentence(offset, value):
    archive = archive_of()
    for signature, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        at = -1
        while (at := archive.find(signature, at + 1)) >= 0:
            archive[at + shift + offset] = value
    with pytest.raises(DataError, match="cannot unpack"):
        unpack(ML_1M, bytes(archive))


def test_the_archive_as_it_should_be_is_unpacked():
    assert set(unpack(ML_1M, bytes(archive_of()))) == set(ML_1M.files)


# The files


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "users.dat").write_text("1::F::18::4::0\n2::M::25::5::0\n")
    (tmp_path / "movies.dat").write_text("1::One (1999)::Drama\n2::Two (1999)::Comedy\n")
    (tmp_path / "ratings.dat").write_text("1::1::5::0\n2::2::4::0\n")
    return tmp_path


@pytest.mark.parametrize("name", ["users.dat", "movies.dat", "ratings.dat"])
@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"\0" * 1000, b"\xff\xfe" + "1::F::18::4::0\n".encode("utf-16-le"), b"::" * 100_000, b"\x1b[2J::\n",
     "\u0661::F::18::4::0\n".encode(), b"9" * 100_000 + b"::1::1::1::1\n", b"-1::-1::-1::-1\n", b"1::1::1e9::0x1\n"],
    ids=["empty", "a line", "zeros", "UTF-16", "separators", "escapes", "other digits", "digits", "negative", "others"],
)  # fmt: skip
def test_files_of_anything_are_one_sentence(folder, name, content):
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=name.replace(".", r"\.")) as refused:
        ML1MDataset(folder)
    assert "\x1b" not in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_an_id_beyond_all_memory_takes_none(folder):
    (folder / "users.dat").write_text("999999999::F::18::4::0\n2::M::25::5::0\n")
    (folder / "ratings.dat").write_text("999999999::1::5::0\n2::2::4::0\n")
    assert ML1MDataset(folder).get_user_num() == 2
