import json
from collections import namedtuple

import pytest
import torch

from brim import cached
from brim.data.cache.file_lock import try_lock
from brim.errors import DataError

Pair = namedtuple("Pair", ["left", "right"])
SAMPLES = [Pair(f"text {number}", 1 << 80) for number in range(8)]


def build(folder):
    said = []
    data = cached(range(8), lambda number: SAMPLES[number], folder, key="mine", report=said.append)
    return data, said


def entry_of(folder):
    return next(folder.glob("*.brim"))


def test_a_class_named_in_the_header_is_neither_imported_nor_called(tmp_path, monkeypatch):
    build(tmp_path / "cache")
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    header = entry_of(tmp_path / "cache") / "header.json"
    content = header.read_text()
    name = json.loads(content)["layouts"][0]["tree"]["class"]
    for other in ("evil_module:Evil", "os:system", "builtins:exec"):
        header.write_text(content.replace(name, other))
        data, said = build(tmp_path / "cache")
        assert data[3] == SAMPLES[3]
        assert "it is built again" in said[0]  # the entry was looked at


def test_a_link_in_the_place_of_a_lock_makes_and_touches_nothing(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        try_lock(tmp_path / "lock", exclusive=True, create=True)
    assert not (tmp_path / "elsewhere").exists()


def test_an_entry_whose_lock_is_a_link_is_built_again(tmp_path):
    build(tmp_path / "cache")
    (tmp_path / "elsewhere").touch()
    before = (tmp_path / "elsewhere").stat().st_mtime_ns
    lock = entry_of(tmp_path / "cache") / "lock"
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    data, said = build(tmp_path / "cache")
    assert (data[3], said[0].endswith("it is built again")) == (SAMPLES[3], True)
    assert (tmp_path / "elsewhere").stat().st_mtime_ns == before


def test_an_entry_that_is_a_link_to_itself_is_one_sentence_or_built_again(tmp_path):
    build(tmp_path / "cache")
    header = entry_of(tmp_path / "cache") / "header.json"
    header.unlink()
    header.symlink_to(header)
    assert build(tmp_path / "cache")[0][3] == SAMPLES[3]


@pytest.mark.parametrize("value", ["text", [["a"]], 1 << 80], ids=["text", "json", "number"])
def test_a_sample_that_changed_on_the_disk_is_one_sentence(tmp_path, value):
    data = cached([value] * 8, lambda sample: sample, tmp_path, key="mine", report=lambda sentence: None)
    assert data[7] == value
    file = entry_of(tmp_path) / "0-0.data"
    file.write_bytes(b"\xff" * file.stat().st_size)
    with pytest.raises(DataError, match=r"sample 7 of the cache entry .* is damaged; remove the entry"):
        data[7]


def test_tensors_are_numbers_whatever_the_bytes(tmp_path):
    data = cached([torch.zeros(2)] * 8, lambda sample: sample, tmp_path, key="mine", report=lambda sentence: None)
    file = entry_of(tmp_path) / "0-0.data"
    file.write_bytes(b"\xff" * file.stat().st_size)
    assert data[7].shape == (2,)
