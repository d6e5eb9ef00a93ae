"""Readers of data: tar shards, the preprocessing cache, MovieLens and its archive."""

import io
import json
import zipfile
import zlib
from pathlib import Path
from random import Random

import torch

from brim.data.cache import cached
from brim.data.cache.dataset import CachedDataset
from brim.data.cache.folder import lock_in_use
from brim.data.cache.packed_store import PackedStore
from brim.data.tar import Shards, pack
from brim.errors import DataError
from brim.workloads.recommender import ML1MDataset
from brim.workloads.recommender.download import SOURCES, unpack
from fuzzing.formats import Files, as_json, spoil
from fuzzing.reader import Reader

# Tar shards, with an index and without


def make_shards(folder: Path) -> None:
    tensor = io.BytesIO()
    torch.save(torch.arange(3.0), tensor)
    samples = [
        {
            "txt": f"text {i}",
            "cls": i,
            "x": torch.arange(i + 1),
            "json": {"a": [i]},
            "y.float": 0.5,
            "p.pt": tensor.getvalue(),
        }
        for i in range(4)
    ]
    pack(samples, folder, samples_per_shard=2)


def spoil_shards(random: Random, files: Files) -> None:
    chosen = random.choice(list(files))
    spoil(random, files, chosen)
    if chosen.endswith(".tar") and random.random() < 0.7:  # looked through anew, so that its members are read
        del files["index.json"], files["index.npy"]
    elif chosen == "index.npy" and random.random() < 0.9:
        described = json.loads(files["index.json"])
        described["table"]["crc32"] = zlib.crc32(files["index.npy"])
        files["index.json"] = as_json(described)


def read_shards(folder: Path, random: Random) -> None:
    shards = Shards(folder, on_damage=random.choice(["error", "skip"]))
    order = list(range(len(shards)))
    shards.__getitems__(order)
    for number in order:
        shards[number]


# The cache of preprocessed samples


def make_cache(folder: Path) -> None:
    samples = [(torch.arange(i % 3), "text" * i, i, [["a"], ["b"]], {"x": 1 << 80}) for i in range(5)]
    cached([*samples, (1, 2)], lambda sample: sample, folder, key="fuzz", report=lambda sentence: None)


def spoil_cache(random: Random, files: Files) -> None:
    spoil(random, files, random.choice([name for name in files if not name.endswith("/lock")]))


def read_cache(folder: Path, random: Random) -> None:
    entry = next(folder.glob("*.brim"))
    lock = lock_in_use(entry)
    assert lock is not None
    data = CachedDataset(PackedStore(entry), lock)
    for number in range(min(len(data), 10)):
        data[number]


# MovieLens


def make_movielens(folder: Path) -> None:
    texts = {
        "users.dat": "".join(f"{user}::{'FM'[user % 2]}::25::{user}::48067\n" for user in range(1, 9)),
        "movies.dat": "".join(f"{movie}::Título {movie} (1995)::Drama|Comedy\n" for movie in range(1, 13)),
        "ratings.dat": "".join(f"{n % 8 + 1}::{n % 12 + 1}::{n % 5 + 1}::97830{n:04}\n" for n in range(48)),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="latin-1")
    (folder / "splits").mkdir()
    for split in ("train", "validation", "test"):
        (folder / "splits" / f"{split}.tsv").write_text("user_id\titem_id\n1\t2\n3\t4\n")


def any_of(random: Random, files: Files) -> None:
    spoil(random, files, random.choice(list(files)))


def read_movielens(folder: Path, random: Random) -> None:
    dataset = ML1MDataset(folder, split_files=folder / "splits" if random.random() < 0.4 else None)
    if len(dataset.user_texts()) != dataset.get_user_num():
        raise AssertionError("people without a text")


def make_archive(folder: Path) -> None:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in SOURCES["ml-1m"].files:
            archive.writestr(zipfile.ZipInfo(f"ml-1m/{name}"), f"{name}\n" * 50, zipfile.ZIP_DEFLATED)
    (folder / "ml-1m.zip").write_bytes(written.getvalue())


def read_archive(folder: Path, random: Random) -> None:
    if set(unpack(SOURCES["ml-1m"], (folder / "ml-1m.zip").read_bytes())) != set(SOURCES["ml-1m"].files):
        raise DataError("it lacks a file")


READERS = {
    "shards": Reader(make_shards, spoil_shards, read_shards),
    "cache": Reader(make_cache, spoil_cache, read_cache),
    "movielens": Reader(make_movielens, any_of, read_movielens),
    "archive": Reader(make_archive, any_of, read_archive),
}
