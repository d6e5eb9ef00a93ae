import hashlib
import io
import tarfile
import zlib

import pytest

from brim.data.tar.scan import scan, split_name
from brim.errors import DataError


def write_tar(path, members, format=tarfile.PAX_FORMAT):
    """A tar of (name, content) pairs; a TarInfo in the place of a name is added as it is."""
    with tarfile.open(path, "w", format=format) as tar:
        for name, content in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def special(name, type, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = type, link
    return info


def samples(path, shard):
    """What the table says of each sample: key, and field to content."""
    content, table, member = path.read_bytes(), shard.table, 0
    found = []
    for number in range(len(table)):
        offset = int(table.offset[number])
        fields = {}
        for _ in range(table.members[number]):
            start = offset + int(table.start[member])
            fields[shard.fields[table.field[member]]] = content[start : start + int(table.length[member])]
            member += 1
        assert zlib.crc32(content[offset : offset + int(table.size[number])]) == table.crc32[number]
        found.append((shard.key(number), fields))
    return found


TWO = [("a.txt", b"one"), ("a.cls", b"1"), ("b.txt", b"x" * 600), ("b.cls", b"2")]
TWO_SAMPLES = [("a", {"txt": b"one", "cls": b"1"}), ("b", {"txt": b"x" * 600, "cls": b"2"})]


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_samples_are_found_where_they_lie(tmp_path, format):
    path = write_tar(tmp_path / "a.tar", TWO, format)
    found = scan(path)
    assert found.problem is None
    assert samples(path, found.shard) == TWO_SAMPLES
    assert found.shard.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (found.shard.bytes, found.shard.mtime_ns) == (path.stat().st_size, path.stat().st_mtime_ns)


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_names_beyond_ascii_are_kept(tmp_path, format):
    key = "größe/" + "n" * 200
    path = write_tar(tmp_path / "a.tar", [(f"{key}.txt", b"1"), (f"{key}.cls", b"2")], format)
    assert samples(path, scan(path).shard) == [(key, {"txt": b"1", "cls": b"2"})]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a.jpg", ("a", "jpg")),
        ("x.y/a.seg.PNG", ("x.y/a", "seg.png")),
        ("./a.jpg", ("./a", "jpg")),
        ("README", None),
        (".hidden", None),
        ("x/.hidden.txt", None),
        ("a.", None),
        ("__meta__/a.txt", None),
    ],
)
def test_the_base_name_is_cut_at_its_first_dot(name, parts):
    assert split_name(name) == parts


def test_folders_and_files_without_extension_belong_to_no_sample(tmp_path):
    members = [(special("d", tarfile.DIRTYPE), b""), ("README", b"text"), *TWO]
    path = write_tar(tmp_path / "a.tar", members)
    assert samples(path, scan(path).shard) == TWO_SAMPLES


@pytest.mark.parametrize(
    ("member", "sentence"),
    [
        ("../a.txt", "leads out of its folder"),
        ("x/../../a.txt", "leads out of its folder"),
        ("/etc/a.txt", "leads out of its folder"),
        (special("a.txt", tarfile.SYMTYPE, "/etc/passwd"), "is a link"),
        (special("a.txt", tarfile.LNKTYPE, "b.txt"), "is a link"),
        (special("a.txt", tarfile.CHRTYPE), "is not a plain file"),
        (special("a.txt", tarfile.BLKTYPE), "is not a plain file"),
        (special("a.txt", tarfile.FIFOTYPE), "is not a plain file"),
    ],
)
def test_what_no_shard_should_hold_is_refused(tmp_path, member, sentence):
    path = write_tar(tmp_path / "a.tar", [*TWO, (member, b"")])
    with pytest.raises(DataError, match=f"a.tar holds .*{sentence}"):
        scan(path)


def test_a_sample_with_one_field_twice_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"holds 'a\.TXT' twice in one sample"):
        scan(write_tar(tmp_path / "a.tar", [("a.txt", b""), ("a.TXT", b"")]))


def test_a_tar_cut_anywhere_is_known_and_its_whole_samples_are_kept(tmp_path):
    content = write_tar(tmp_path / "whole.tar", TWO).read_bytes()
    ends = [4 * 512, 4 * 512 + 512 + 1024 + 2 * 512]  # of the samples with their padding
    path = tmp_path / "cut.tar"
    for size in range(512, ends[1] + 1, 128):
        path.write_bytes(content[:size])
        found = scan(path)
        assert found.problem
        # A sample is whole for certain only if what follows it has begun.
        assert samples(path, found.shard) == TWO_SAMPLES[: int(size >= ends[0] + 512)]


def test_a_header_with_a_flipped_bit_is_no_silent_end(tmp_path):
    path = write_tar(tmp_path / "a.tar", [*TWO, ("c.txt", b"3")])
    content = bytearray(path.read_bytes())
    content[4 * 512 + 512 + 1024 + 4] ^= 1  # in the name of b.cls
    path.write_bytes(content)
    found = scan(path)
    assert "no header and no end mark at byte 3,584" in found.problem
    assert samples(path, found.shard) == TWO_SAMPLES[:1]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not a tar file"),
        (b"no tar" * 1000, "is not a tar file"),
        (b"\x1f\x8b" + bytes(1000), "is compressed with gzip, so its samples cannot be reached; unpack it first"),
        (b"\x28\xb5\x2f\xfd" + bytes(1000), "is compressed with zstd"),
    ],
)
def test_what_is_no_tar_is_one_sentence(tmp_path, content, sentence):
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.tar {sentence}"):
        scan(tmp_path / "a.tar")


def test_an_empty_tar_has_no_samples(tmp_path):
    found = scan(write_tar(tmp_path / "a.tar", []))
    assert (found.problem, len(found.shard.table)) == (None, 0)


def test_progress_adds_up_to_the_file(tmp_path):
    path = write_tar(tmp_path / "a.tar", TWO)
    told = []
    scan(path, told.append)
    assert sum(told) == path.stat().st_size
