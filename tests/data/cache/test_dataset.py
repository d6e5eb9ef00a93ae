import errno
import json
import multiprocessing
import os
import pickle
import random
import time
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from brim.data.cache.dataset import CHECKED_AT_OPENING, TWICE_AT_BUILDING, CachedDataset, cached
from brim.data.cache.packed_writer import PackedWriter
from brim.errors import ConfigError, DataError


class Pair(NamedTuple):
    left: Any
    right: Any


class Squares(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return index**2


def stackable(x):
    return {"x": torch.full((2, 3), x / 3), "pair": Pair(x, (x > 9, np.float32(x)))}


def mixed(x):
    """Texts, varying shapes and varying structures."""
    return (torch.arange(x % 5), f"text {x}", None if x % 2 else Pair(x, [x] * (x % 3)))


def entries(folder):
    return sorted(path for path in folder.iterdir() if path.name.endswith(".brim"))


def others(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".brim"))


@pytest.mark.parametrize("transform", [stackable, mixed])
@pytest.mark.parametrize("workers", [0, 2])
def test_samples_are_what_the_transform_gives_at_first_and_when_opened_again(tmp_path, transform, workers):
    source = Squares(40)
    for _ in range(2):
        cache = cached(source, transform, tmp_path, num_workers=workers)
        assert len(cache) == len(list(cache)) == 40
        for index in (0, 7, 39, -1):
            left, right = cache[index], transform(source[index % 40])
            assert pickle.dumps(left) == pickle.dumps(right) or repr(left) == repr(right)
            assert type(left) is type(right)
    assert len(entries(tmp_path)) == 1
    assert others(tmp_path) == []


@pytest.mark.parametrize(
    "index", [[3, 1, 4, 1], torch.tensor([0, 39]), np.array([5]), [-1, 0], torch.tensor([2], dtype=torch.int32)]
)
def test_a_list_of_indices_gives_what_the_default_collate_makes_of_these_samples(tmp_path, index):
    cache = cached(Squares(40), stackable, tmp_path)
    expected = default_collate([cache[int(i)] for i in index])
    assert repr(cache[index]) == repr(expected)
    assert [x.dtype for x in cache[index]["pair"].right] == [x.dtype for x in expected["pair"].right]


def test_columns_are_the_whole_as_a_batch(tmp_path):
    cache = cached(Squares(20), stackable, tmp_path)
    assert repr(cache.columns) == repr(default_collate([stackable(i**2) for i in range(20)]))


def test_samples_that_do_not_stack_have_no_columns_and_no_batches(tmp_path):
    cache = cached(Squares(20), mixed, tmp_path)
    assert cache.columns is None
    with pytest.raises(TypeError, match="one by one"):
        cache[[1, 2]]
    assert [sample[1] for sample in cache.__getitems__([1, 2])] == ["text 1", "text 4"]


def test_an_index_that_is_none_is_refused(tmp_path):
    cache = cached(Squares(20), stackable, tmp_path)
    for index in (20, -21, [20], torch.tensor([-21])):
        with pytest.raises(IndexError, match="of a cache of 20 samples"):
            cache[index]
    for index in ("a", 1.5, [1.5], [True] * 20, [[1]]):
        with pytest.raises(TypeError):
            cache[index]


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_data_loader_gives_the_same_batches_as_without_the_cache(tmp_path, workers):
    cache = cached(Squares(10), stackable, tmp_path)
    plain = DataLoader([stackable(i**2) for i in range(10)], batch_size=4)
    assert repr(list(DataLoader(cache, batch_size=4, num_workers=workers))) == repr(list(plain))


def test_a_spawned_worker_opens_the_same_files(tmp_path):
    cache = cached(Squares(10), stackable, tmp_path)
    again = pickle.loads(pickle.dumps(cache))
    assert repr(again[[3, 4]]) == repr(cache[[3, 4]])
    assert len(pickle.dumps(cache)) < 2000
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert repr(pool.apply(CachedDataset.__getitem__, (cache, 3))) == repr(cache[3])


def test_a_copy_of_an_entry_that_was_replaced_since_is_refused(tmp_path):
    there = pickle.dumps(cached(Squares(10), stackable, tmp_path, key="a"))
    cached(Squares(10), lambda x: x, tmp_path, key="a", report=lambda sentence: None)
    with pytest.raises(DataError, match="was removed or replaced"):
        pickle.loads(there)


X = torch.arange(12).reshape(6, 2)


@pytest.mark.parametrize(
    ("source", "first"),
    [
        (X, X[0]),
        (X.numpy(), X.numpy()[0]),
        ((X, X.numpy(), ["a"] * 6), (X[0], X.numpy()[0], "a")),
        ({"x": X, "deep": (X, X)}, {"x": X[0], "deep": (X[0], X[0])}),
        (TensorDataset(X), (X[0],)),
        ([5, 6, 7], 5),
    ],
)
def test_tensors_arrays_lists_and_columns_are_sources(tmp_path, source, first):
    assert repr(cached(source, lambda sample: sample, tmp_path)[0]) == repr(first)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


@pytest.mark.parametrize("source", [Stream(), 7, [], (X, X[:3]), ()])
def test_a_source_without_samples_in_order_is_refused(tmp_path, source):
    with pytest.raises(DataError):
        cached(source, abs, tmp_path)


def test_the_transform_runs_once_for_each_sample_and_a_few_times_to_check(tmp_path):
    calls = []
    cached(list(range(100)), lambda x: calls.append(x) or x, tmp_path, key="counted")
    assert len(calls) == 100 + 2 * TWICE_AT_BUILDING + CHECKED_AT_OPENING
    calls.clear()
    cache = cached(list(range(100)), lambda x: calls.append(x) or x, tmp_path, key="counted")
    assert list(cache) == list(range(100))
    assert len(calls) == CHECKED_AT_OPENING


def test_another_transform_is_another_entry(tmp_path):
    assert cached([1, 2], lambda x: x + 1, tmp_path)[0] == 2
    assert cached([1, 2], lambda x: x + 2, tmp_path)[0] == 3
    assert cached([2, 3], lambda x: x + 2, tmp_path)[0] == 4
    assert len(entries(tmp_path)) == 3


class LeavesItsDataOut:
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index]

    def __getstate__(self):
        return {}


def test_data_that_copying_leaves_out_is_not_served_from_the_entry_of_other_data(tmp_path):
    first, other = torch.arange(500.0), torch.arange(500.0)
    other[7] = -1
    for x in (first, other):
        assert cached(LeavesItsDataOut(x), abs, tmp_path, report=lambda sentence: None)[7] == x[7].abs()


def test_an_entry_whose_samples_come_out_differently_is_built_again_with_one_sentence(tmp_path):
    sentences = []
    cached([1, 2], lambda x: x + 1, tmp_path, key="mine", report=sentences.append)
    assert sentences == []
    assert list(cached([1, 2], lambda x: x + 2, tmp_path, key="mine", report=sentences.append)) == [3, 4]
    assert len(sentences) == 1
    assert "is out of date (sample" in sentences[0]
    assert list(cached([1, 2], lambda x: Pair(x, 0), tmp_path, key="mine", report=sentences.append)) == [(1, 0), (2, 0)]
    assert len(entries(tmp_path)) == 1


def damage_header(entry):
    (entry / "header.json").write_text("{")


def truncate(entry):
    os.truncate(entry / "0-0.data", 3)


def remove(name):
    return lambda entry: (entry / name).unlink()


def change_sample_count(entry):
    header = json.loads((entry / "header.json").read_text())
    header["samples"] = header["layouts"][0]["rows"] = 10**12
    (entry / "header.json").write_text(json.dumps(header))


@pytest.mark.parametrize(
    "damage", [damage_header, truncate, remove("0-0.data"), remove("header.json"), remove("lock"), change_sample_count]
)
def test_a_damaged_entry_is_built_again_with_one_sentence(tmp_path, damage):
    sentences = []
    cached([1, 2, 3], abs, tmp_path)
    damage(entries(tmp_path)[0])
    assert list(cached([1, 2, 3], abs, tmp_path, report=sentences.append)) == [1, 2, 3]
    assert len(sentences) == 1
    assert "is damaged" in sentences[0]
    assert others(tmp_path) == []


@pytest.mark.parametrize(
    "transform",
    [
        lambda x: x + torch.rand(()),
        lambda x: x + random.random(),
        lambda x: x + np.random.rand(),
        lambda x: x + float(np.random.default_rng().random()),
        lambda x: x if torch.rand(()) > 1e-9 else 0.0,  # seldom another result, but always a draw
        lambda x: x + time.perf_counter(),
    ],
)
def test_a_random_transform_is_refused(tmp_path, transform):
    with pytest.raises(DataError, match=r"the transform is random: .* cache what comes before it"):
        cached([1.0] * 20, transform, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_transform_that_seeds_its_own_draws_is_not_random(tmp_path):
    def transform(x):
        torch.manual_seed(x)
        return torch.rand(2)

    before = torch.get_rng_state()
    cache = cached([1, 2, 3], transform, tmp_path)
    assert torch.equal(torch.get_rng_state(), before)  # and what comes after draws as if nothing had happened
    assert torch.equal(cache[1], transform(2))


def test_a_transform_whose_results_change_later_on_is_refused_after_building(tmp_path):
    calls, built = [], 2 * TWICE_AT_BUILDING + 100
    with pytest.raises(DataError, match="the transform is random: what was just computed"):
        cached([1] * 100, lambda x: calls.append(x) or (x if len(calls) <= built else -x), tmp_path, key="a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_the_transform_names_the_sample_and_leaves_nothing_behind(tmp_path, workers, monkeypatch):
    monkeypatch.setattr("brim.data.cache.dataset.TWICE_AT_BUILDING", 1)

    def transform(x):
        if x in (37, 38):
            raise ValueError("bad picture")
        return x

    with pytest.raises(DataError, match=r"sample 3[78] with ValueError: bad picture \(.*test_dataset.py, line"):
        cached(list(range(200)), transform, tmp_path, num_workers=workers)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_what_cannot_be_stored_names_type_and_sample(tmp_path, workers):
    with pytest.raises(DataError, match=r"sample \d+ holds a set"):
        cached([1, 2, 3], lambda x: {x}, tmp_path, num_workers=workers)


def test_ctrl_c_leaves_nothing_behind(tmp_path):
    def transform(x):
        calls.append(x)
        if len(calls) == 60:
            raise KeyboardInterrupt
        return x

    calls = []
    with pytest.raises(KeyboardInterrupt):
        cached(list(range(100)), transform, tmp_path, key="a")
    assert list(tmp_path.iterdir()) == []


def test_an_estimate_beyond_the_limit_is_refused_before_the_work(tmp_path):
    calls = []
    with pytest.raises(DataError, match=r"1,000 samples would take about 3.8 MiB, more than max_size=1.0 MiB; raise"):
        cached(range(1000), lambda x: calls.append(x) or torch.zeros(1000), tmp_path, max_size="1MiB", key="a")
    assert len(calls) == 2 * TWICE_AT_BUILDING
    assert list(tmp_path.iterdir()) == []


def test_the_limit_holds_while_writing_too(tmp_path, monkeypatch):
    monkeypatch.setattr("brim.data.cache.dataset._estimate", lambda samples: 1000)
    with pytest.raises(DataError, match=r"passed max_size=1.0 MiB after 2\d\d of 1,000 samples"):
        cached(range(1000), lambda x: torch.zeros(1000), tmp_path, max_size="1MiB")
    assert list(tmp_path.iterdir()) == []


def kilobytes(number):
    return lambda x: torch.full((250,), number)  # 2 kB a sample


def test_the_least_recently_used_entries_make_room_and_open_ones_stay(tmp_path):
    (tmp_path / "somebody's file").write_text("stays")
    (tmp_path / "folder").mkdir()
    for number in range(4):  # about 200 kB each
        cached(range(100), kilobytes(number), tmp_path, max_size="700kB", key=str(number))
        for age, entry in enumerate(sorted(entries(tmp_path), key=lambda path: (path / "lock").stat().st_mtime_ns)):
            os.utime(entry / "lock", ns=(age, age))
    assert len(entries(tmp_path)) == 3
    kept = cached(range(100), kilobytes(1), tmp_path, max_size="700kB", key="1")  # used again: the last to go
    os.utime(kept.folder / "lock", ns=(0, 0))  # and though it looks the oldest now, it is open
    cached(range(200), kilobytes(9), tmp_path, max_size="700kB", key="9")
    assert kept.folder in entries(tmp_path)
    assert kept[5][0] == 1
    assert len(entries(tmp_path)) == 2
    with pytest.raises(DataError, match=r"raise max_size= or take another folder"):
        cached(range(300), kilobytes(5), tmp_path, max_size="700kB", key="5")
    assert others(tmp_path) == ["folder", "somebody's file"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_sentence_and_leaves_nothing_behind(tmp_path, monkeypatch, number):
    def full(writer):
        raise OSError(number, "No space left on device")

    monkeypatch.setattr(PackedWriter, "_flush", full)
    with pytest.raises(DataError, match="there is no space left for the cache in"):
        cached(range(10), abs, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="the cache cannot be written to"):
        cached(range(10), abs, tmp_path / "file" / "cache")


def test_what_killed_builders_left_is_removed(tmp_path):
    for name in ("half", "trash"):
        (tmp_path / f"{'0' * 32}.brim.{name}-01234567").mkdir()
        (tmp_path / f"{'0' * 32}.brim.{name}-01234567" / "0-0.data").write_text("1")
    cached(range(10), abs, tmp_path)
    assert others(tmp_path) == []


def test_progress_is_told_in_lines_where_there_is_no_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr("brim.data.cache.progress.QUIET_SECONDS", 0.0)
    sentences = []
    cached(range(100), abs, tmp_path, report=sentences.append)
    assert sentences[0].startswith("building the cache: 1 of 100 samples, about ")
    assert len(sentences) == 1


def test_settings_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="num_workers=-1"):
        cached([1], abs, tmp_path, num_workers=-1)
    with pytest.raises(ConfigError, match="max_size='much'"):
        cached([1], abs, tmp_path, max_size="much")
