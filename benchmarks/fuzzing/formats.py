"""Changes that know a file's format: what is inside changes, and the sums and lengths around it fit again."""

import io
import json
import tarfile
import zipfile
from random import Random

import numpy as np

from fuzzing.mutation import NUMBERS, mutate, mutate_json, mutate_yaml

Files = dict[str, bytes]
"""The files of a folder, by their names in it."""

BLOCK = tarfile.BLOCKSIZE
TAR_FIELDS = {"name": (0, 100), "size": (124, 12), "type": (156, 1), "link": (157, 100), "magic": (257, 8)}
TAR_NAMES = [
    b"../x.txt",
    b"/etc/x.txt",
    b"a/../../x.txt",
    b"",
    b"x",
    b".txt",
    b"a.pkl",
    b"a.npy",
    b"\xff.txt",
    b"a" * 100,
]


def spoil(random: Random, files: Files, name: str) -> None:
    """Change one of ``files`` in place: as bytes, or inside its format."""
    content, other = files[name], random.choice(list(files.values()))
    inside = BY_SUFFIX.get(name.rpartition(".")[2])
    if inside is None or random.random() < 0.4:
        files[name] = mutate(random, content, other)
        return
    try:
        files[name] = inside(random, content)
    except (ValueError, UnicodeError, RecursionError):  # a value that this format cannot hold
        files[name] = mutate(random, content, other)


def spoil_lines(random: Random, content: bytes) -> bytes:
    """One JSON object of a file with one a line."""
    lines = content.splitlines()
    at = random.randrange(len(lines))
    lines[at] = mutate_json(random, lines[at])
    return b"\n".join(lines) + b"\n"


def spoil_safetensors(random: Random, content: bytes) -> bytes:
    size = int.from_bytes(content[:8], "little")
    header = mutate_json(random, content[8 : 8 + size])
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def spoil_zip(random: Random, content: bytes) -> bytes:
    """One member of an archive, with its sum: what torch.save writes is an archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    pickled = [name for name in members if name.endswith(".pkl")]
    chosen = random.choice(pickled if pickled and random.random() < 0.8 else list(members))
    members[chosen] = mutate(random, members[chosen], random.choice(list(members.values())))
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member)  # a ZipInfo of its own: without it the clock is written
    return written.getvalue()


def spoil_tar(random: Random, content: bytes) -> bytes:
    """A header of a member, with its sum, or what a member holds."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        member = random.choice(archive.getmembers())
    if random.random() < 0.5:
        inside = mutate(random, content[member.offset_data : member.offset_data + member.size])
        header = tarfile.TarInfo(member.name)
        header.size = len(inside)
        padding = bytes(-len(inside) % BLOCK)
        end = member.offset_data + -(-member.size // BLOCK) * BLOCK
        return content[: member.offset] + header.tobuf() + inside + padding + content[end:]
    start = member.offset_data - BLOCK
    return content[:start] + _spoil_header(random, content[start : start + BLOCK]) + content[start + BLOCK :]


def _spoil_header(random: Random, header: bytes) -> bytes:
    start, size = TAR_FIELDS[random.choice(list(TAR_FIELDS))]
    number = random.choice(NUMBERS)
    fillings = [
        random.choice(TAR_NAMES), random.choice(b"01234567LKxgS").to_bytes(1, "big"), b"%011o" % (number % 8**11),
        b"\x80" + (number % 2**80).to_bytes(11, "big"), b"\xff" + (-number % 2**80).to_bytes(11, "big"),
        random.randbytes(size),
    ]  # fmt: skip
    changed = bytearray(header)
    changed[start : start + size] = random.choice(fillings)[:size].ljust(size, b"\0")
    changed[148:156] = b" " * 8
    changed[148:156] = b"%06o\0 " % sum(changed)
    return bytes(changed)


def spoil_columns(random: Random, content: bytes) -> bytes:
    """One number in one of the .npy arrays that follow each other in a file."""
    stream, columns = io.BytesIO(content), []
    while stream.tell() < len(content):
        columns.append(np.load(stream, allow_pickle=False))
    column = random.choice([column for column in columns if column.size])
    number, bits = random.choice(NUMBERS) * random.choice([1, -1]), 8 * column.itemsize
    column[random.randrange(column.size)] = np.array(number % 2**bits, f"u{column.itemsize}").astype(column.dtype)
    written = io.BytesIO()
    for column in columns:
        np.save(written, column)
    return written.getvalue()


BY_SUFFIX = {
    "json": mutate_json, "jsonl": spoil_lines, "yaml": mutate_yaml, "safetensors": spoil_safetensors, "pt": spoil_zip,
    "zip": spoil_zip, "tar": spoil_tar, "npy": spoil_columns,
}  # fmt: skip


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()
