import time
from itertools import islice

import pytest
import torch

from brim.data.reading import dataset_probe
from brim.data.reading.dataset_probe import batch_cost, probe_dataset, quick_probe, rate_by_workers, tensor_bytes
from brim.data.reading.one_batch import BatchReader
from brim.data.reading.samples import WorkerSettings


class Made:
    """A data set that gives whatever ``get`` gives."""

    def __init__(self, get, samples=50):
        self.get, self.samples, self.asked = get, samples, []

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        self.asked.append(index)
        return self.get(index)


def reader(get, samples=50):
    return BatchReader(Made(get, samples), None)


def failing(index):
    raise OSError("gone")


def test_the_bytes_and_tensors_of_a_batch_are_counted_in_any_nesting():
    assert tensor_bytes({"x": torch.zeros(2, 3), "y": [torch.zeros(4, dtype=torch.uint8), "text"]}) == (28, 2)
    assert tensor_bytes(["a", "b"]) == (0, 0)


@pytest.mark.parametrize("samples", [1, 2, 50])
def test_a_quick_look_costs_four_samples_at_most(samples):
    made = reader(lambda index: (torch.zeros(3), index), samples)
    cost = quick_probe(made, samples)
    assert len(made.dataset.asked) <= 4
    assert {0, samples - 1} <= set(made.dataset.asked)
    assert (cost.bytes, cost.tensors) == (3 * 4 + 8, 2)
    assert 0 < cost.seconds <= cost.slowest


def test_samples_that_fail_have_no_cost():
    assert quick_probe(reader(failing), 50) is None
    assert batch_cost(reader(failing), 50, 8) is None


@pytest.mark.parametrize("samples", [1, 3, 50])
@pytest.mark.parametrize("batch_size", [1, 8, 100])
def test_the_cost_is_that_of_a_whole_batch(samples, batch_size):
    cost, tried = batch_cost(reader(lambda index: torch.zeros(4), samples), samples, batch_size)
    assert 1 <= tried <= min(batch_size, samples)
    assert cost.bytes == 16 * batch_size
    assert cost.tensors == 1
    assert 0 < cost.seconds <= cost.slowest


def test_of_slow_samples_few_are_tried_and_the_rest_is_reckoned(monkeypatch):
    monkeypatch.setattr(dataset_probe, "LONGEST_PROBE_BATCH", 0.01)
    monkeypatch.setattr(dataset_probe, "PROBE_SECONDS", 0.05)
    made = reader(lambda index: time.sleep(0.005) or index)
    cost, tried = batch_cost(made, 50, 40)
    assert tried <= 2
    assert len(made.dataset.asked) < 40
    assert cost.seconds >= 40 * 0.005


def test_measuring_leaves_the_generators_of_the_process_alone():
    before = torch.get_rng_state()
    quick_probe(reader(lambda index: torch.rand(2)), 50)
    batch_cost(reader(lambda index: torch.rand(2)), 50, 4)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_rate_is_in_batches_of_the_real_size():
    made = reader(lambda index: time.sleep(0.01) or index)
    rate = rate_by_workers(made, 50, batch_size=8, probe_size=2, settings=WorkerSettings())
    assert 0 < rate(1, 2) <= 2 * 100 / 8  # a sample takes 10 ms: about 100 a second


def in_worker_only(index):
    if torch.utils.data.get_worker_info() is not None:
        raise OSError("not from here")
    return index


def test_workers_that_fail_have_no_rate():
    assert rate_by_workers(reader(in_worker_only), 50, 8, 2, WorkerSettings())(1, 2) == 0.0


@pytest.mark.parametrize("error", [TypeError("cannot pickle"), OSError(24, "too many open files")])
def test_workers_that_cannot_be_started_have_no_rate(monkeypatch, error):
    class Broken:
        def __iter__(self):
            raise error

    monkeypatch.setattr(dataset_probe, "worker_pool", lambda *_, **__: Broken())
    assert rate_by_workers(reader(int), 50, 8, 2, WorkerSettings(context="spawn"))(1, 2) == 0.0


def test_there_is_always_another_batch_to_try():
    draws = list(islice(dataset_probe.endless(5, 2), 9))
    assert [len(draw.indices) for draw in draws] == [2, 2, 1] * 3
    assert sorted(index for draw in draws[:3] for index in draw.indices) == list(range(5))
    assert len({draw.key for draw in draws}) == 9
    assert [len(draw.indices) for draw in islice(dataset_probe.endless(3, 10), 2)] == [3, 3]


class Keeping(Made):
    """Learns from what it has read."""

    def __init__(self, samples=50):
        super().__init__(None, samples)
        self.level = 0

    def __getitem__(self, index):
        self.level += 1
        return torch.tensor([index, self.level])


def test_a_look_leaves_the_data_set_as_it_was_and_says_what_reading_changes():
    data = Keeping()
    seen = probe_dataset(BatchReader(data, None), 50)
    assert seen.changes == "level"
    assert data.level == 0


def test_a_collate_function_that_counts_is_noticed():
    counted = []
    made = BatchReader(list(range(50)), lambda samples: counted.append(1) or torch.tensor(samples))
    assert probe_dataset(made, 50).changes == "collate_fn"
    assert counted == []


def test_a_look_says_what_one_sample_costs():
    seen = probe_dataset(reader(lambda index: (torch.zeros(3), index)), 50)
    assert (seen.cost.bytes, seen.cost.tensors, seen.gain) == (3 * 4 + 8, 2, None)


class Rows(Made):
    def __init__(self):
        super().__init__(torch.arange(50.0).__getitem__)

    def __getitem__(self, index):
        return self.get(index)


def test_batches_are_tried_only_where_that_was_asked_for_and_reading_changes_nothing(monkeypatch):
    monkeypatch.setattr(dataset_probe, "LONGEST_BATCHED_TRIAL", float("inf"))
    assert probe_dataset(BatchReader(Rows(), None), 50, try_batches=True).gain > 0
    assert probe_dataset(BatchReader(Rows(), None), 50).gain is None
    assert probe_dataset(BatchReader(Keeping(), None), 50, try_batches=True).gain is None


def test_samples_that_fail_are_trouble():
    assert probe_dataset(reader(failing), 50).trouble == "its samples cannot be read"


def test_a_data_set_that_writes_files_is_looked_at_no_further(tmp_path):
    def noting(index):
        with (tmp_path / "log").open("a") as log:
            log.write(f"{index}\n")
        return index

    seen = probe_dataset(reader(noting), 50, try_batches=True)
    assert "writes files" in seen.trouble
    assert not (tmp_path / "log").exists()


def test_what_cannot_be_tried_without_a_trace_is_trouble():
    data = Keeping()
    data.shared = torch.zeros(1).share_memory_()
    assert "without leaving a trace" in probe_dataset(BatchReader(data, None), 50).trouble


def test_measuring_a_batch_or_a_rate_leaves_no_trace(capfd):
    data = Keeping()
    made = BatchReader(data, None)
    batch_cost(made, 50, 4)
    rate_by_workers(made, 50, 8, 2, WorkerSettings(init=print))(0, 2)
    rate_by_workers(made, 50, 8, 2, WorkerSettings(init=print))(1, 2)
    assert data.level == 0
    assert capfd.readouterr().out == ""
