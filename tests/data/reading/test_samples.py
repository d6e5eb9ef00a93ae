import gc
import multiprocessing
import os
import random
import select
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, get_worker_info

from brim.data.garbage import gc_paused
from brim.data.randomness.order import batch_bounds, epoch_permutation
from brim.data.reading import samples, workers
from brim.data.reading.one_batch import BatchReader
from brim.data.reading.samples import SampleSource, WorkerDraws, WorkerSettings, draws_of
from brim.data.times import FeedTimes
from brim.errors import DataError

SAMPLES = 20


class Made:
    """A data set that gives whatever ``get`` gives."""

    def __init__(self, get):
        self.get = get

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.get(index)


def source(get, count=0, collate=None, **settings):
    return SampleSource(BatchReader(Made(get), collate), SAMPLES, WorkerSettings(count, **settings), FeedTimes())


def read(made, key=1, batch_size=3, start=0, order=None):
    return made.read(order, batch_bounds(SAMPLES, batch_size, start), key)


def lists(batches):
    return [batch.tolist() for batch in batches]


def augmented(index):
    return torch.tensor([index, torch.rand(()), random.random(), np.random.rand()], dtype=torch.float64)


def states():
    return torch.get_rng_state().tolist(), random.getstate(), [str(part) for part in np.random.get_state()]


def test_each_batch_has_a_key_of_its_own_by_its_position():
    order = epoch_permutation(SAMPLES, 0, 0)
    draws = list(draws_of(order, batch_bounds(SAMPLES, 3), key=5))
    assert [draw.indices for draw in draws] == [order[a:b].tolist() for a, b in batch_bounds(SAMPLES, 3)]
    assert len({draw.key for draw in draws}) == len(draws)
    assert list(draws_of(order, batch_bounds(SAMPLES, 3, start=6), key=5)) == draws[2:]
    assert [draw.indices for draw in draws_of(None, batch_bounds(5, 3), 5)] == [[0, 1, 2], [3, 4]]


def test_random_samples_do_not_change_with_the_number_of_workers_nor_with_resuming():
    before, alone = states(), source(augmented)
    expected, other_key = lists(read(alone)), lists(read(alone, key=2))
    numbers = [number for batch in expected + other_key for sample in batch for number in sample[1:]]
    assert len(set(numbers)) == len(numbers)  # nothing is drawn twice: not by batches, epochs or generators
    for count in (1, 2):
        made = source(augmented, count)
        assert lists(read(made)) == expected
        assert lists(read(made, key=2)) == other_key
        assert lists(read(made, start=9)) == expected[3:]
    assert lists(read(alone, start=9)) == expected[3:]
    assert states() == before


def workers_of(batches):
    return {int(pid) for batch in batches for pid in batch}


def test_persistent_workers_are_kept_and_others_are_not():
    kept, fresh = (source(lambda index: os.getpid(), 2, persistent=persistent) for persistent in (True, False))
    assert workers_of(read(kept)) == workers_of(read(kept))
    assert not workers_of(read(fresh)) & workers_of(read(fresh))


def test_a_loop_that_is_left_early_does_not_disturb_the_next_one():
    made = source(torch.tensor, 2)
    expected = lists(read(source(torch.tensor)))
    for leave_after in (0, 2, 5):
        for at, batch in enumerate(read(made)):
            assert batch.tolist() == expected[at]
            if at == leave_after:
                break
        assert lists(read(made)) == expected


def test_epochs_that_are_read_side_by_side_do_not_disturb_each_other():
    made = source(augmented, 1)
    expected = [lists(read(source(augmented), key)) for key in (1, 2)]
    one, other = read(made, 1), read(made, 2)
    seen = [(first.tolist(), second.tolist()) for first, second in zip(one, other, strict=True)]
    assert [first for first, _ in seen] == expected[0]
    assert [second for _, second in seen] == expected[1]


def test_every_worker_runs_what_the_user_gave_first():
    made = source(lambda index: int(os.environ["BRIM_TEST_WORKER"]), 2, init=note_worker)
    assert workers_of(read(made)) == {0, 1}


def note_worker(worker):
    os.environ["BRIM_TEST_WORKER"] = str(worker)


def test_workers_of_another_start_method_give_the_same():
    x = torch.arange(SAMPLES)
    made = SampleSource(
        BatchReader(TensorDataset(x), None), SAMPLES, WorkerSettings(1, context="forkserver"), FeedTimes()
    )
    assert [batch[0].tolist() for batch in read(made)] == lists(read(source(torch.tensor)))


def test_reading_is_timed_where_it_happens():
    def slow(index):
        time.sleep(0.001)
        return index

    for count in (0, 1):
        made = source(slow, count)
        list(read(made))
        assert made.times.fetch > SAMPLES * 0.001
        assert made.times.collate > 0


class Corrupt(Exception):
    def __init__(self, file, offset):
        super().__init__(f"{file} is damaged at {offset}")


def failing(index):
    if index == 7:
        raise Corrupt("a.jpg", 17)
    return torch.tensor(index)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_sample_that_fails_is_named_in_its_turn_and_the_next_epoch_goes_on(count):
    made = source(failing, count)
    for _ in range(2):
        seen = []
        with pytest.raises(DataError, match=r"^sample 7 of Made cannot be read: Corrupt: a.jpg is damaged") as caught:
            seen.extend(batch.tolist() for batch in read(made))
        assert seen == [[0, 1, 2], [3, 4, 5]]
        if count == 0:
            assert isinstance(caught.value.__cause__, Corrupt)
        else:
            assert 'raise Corrupt("a.jpg", 17)' in "".join(caught.value.__notes__)  # where it happened
    assert lists(read(made, start=9))[0] == [9, 10, 11]


@pytest.mark.parametrize("count", [0, 1])
def test_samples_that_cannot_be_put_together_are_told_apart(count):
    made = source(lambda index: torch.zeros(2 if index == 4 else 1), count)
    with pytest.raises(DataError, match=r"3 samples of Made cannot be put.*sample 4 has a tensor \(2,\)"):
        list(read(made))


@pytest.mark.parametrize("count", [0, 1])
def test_a_collate_function_that_fails_is_told(count):
    with pytest.raises(DataError, match="collate_fn failed for 3 samples of Made: ZeroDivisionError"):
        list(read(source(torch.tensor, count, collate=lambda samples: 1 / 0)))


@pytest.mark.parametrize(
    "count",
    [0, 1],
)
def test_one_sample_of_another_dtype_is_refused(count):
    made = source(lambda index: torch.zeros(1, dtype=torch.float64 if index == 4 else torch.float32), count)
    with pytest.raises(DataError, match="differ in type: sample 4 has"):
        list(read(made))


def test_samples_on_different_devices_are_told_apart_in_a_worker():
    made = source(lambda index: torch.zeros(1, device="meta" if index == 4 else "cpu"), 1)
    with pytest.raises(DataError, match=r"sample 4 has a tensor .* on meta, sample 3 has .* on cpu"):
        list(read(made, start=3))


@pytest.mark.parametrize("error", [ConnectionResetError(104, "Connection reset by peer"), EOFError(), OSError(24, "x")])
def test_a_batch_that_got_lost_on_its_way_from_a_worker_is_an_error_of_the_data(monkeypatch, error):
    class Broken:
        batch_sampler = WorkerDraws()

        def __iter__(self):
            raise error

    monkeypatch.setattr(samples, "worker_pool", lambda *_, **__: Broken())
    with pytest.raises(DataError, match="loader process"):
        list(read(source(torch.tensor, 1)))


def test_errors_that_are_not_about_workers_come_through_as_they_are(monkeypatch):
    class Broken:
        batch_sampler = WorkerDraws()

        def __iter__(self):
            raise RuntimeError("CUDA error")

    monkeypatch.setattr(samples, "worker_pool", lambda *_, **__: Broken())
    with pytest.raises(RuntimeError, match="CUDA error"):
        list(read(source(torch.tensor, 1)))


class Opened(Made):
    """Reads from a file that its worker opens, as people do it."""

    file = -1

    def __init__(self):
        super().__init__(None)
        self.names = [str(index) for index in range(20_000)]

    def __getitem__(self, index):
        return torch.tensor([self.file, len(self.names)])


def open_file(worker):
    data = get_worker_info().dataset
    assert type(data) is Opened
    assert type(data.names) is list
    data.file = 7


def test_the_data_set_of_a_worker_is_the_users_where_its_init_function_looks():
    data = Opened()
    made = SampleSource(BatchReader(data, None), SAMPLES, WorkerSettings(1, init=open_file), FeedTimes())
    assert lists(read(made)) == [
        batch.tolist() for batch in DataLoader(data, 3, num_workers=1, worker_init_fn=open_file)
    ]
    assert data.file == -1


def test_the_data_set_of_a_worker_is_the_users_where_its_samples_look():
    made = source(lambda index: isinstance(get_worker_info().dataset, Made), 1)
    assert all(batch.all() for batch in read(made))


def seed_of_worker(index):
    return torch.tensor(get_worker_info().seed)


def test_the_seed_of_a_worker_is_another_one_in_another_epoch():
    made = source(seed_of_worker, 1, persistent=False)
    one, other = (torch.cat(list(read(made, key))).unique() for key in (6, 10))
    assert len(one) == len(other) == 1
    assert one != other
    assert torch.equal(torch.cat(list(read(made, 6))).unique(), one)


class Learning(Made):
    """Learns from one sample, which comes late."""

    def __init__(self, late):
        super().__init__(None)
        self.late, self.level, self.hard = late, 0, []

    def __getitem__(self, index):
        if index == self.late:
            self.level += 1
            self.hard.append(index)
        return torch.tensor([index, self.level, len(self.hard)])


@pytest.mark.parametrize("late", [0, 7, 19])
@pytest.mark.parametrize("count", [1, 2])
def test_a_data_set_that_changes_in_a_worker_that_brim_chose_is_read_here_from_that_batch_on(late, count):
    plain, ours, said = Learning(late), Learning(late), []
    settings = WorkerSettings(count, persistent=False, are_asked_for=False)
    made = SampleSource(BatchReader(ours, None), SAMPLES, settings, FeedTimes())
    made.report = said.append
    for _ in range(3):
        expected = [torch.stack([plain[at] for at in range(a, b)]).tolist() for a, b in batch_bounds(SAMPLES, 3)]
        assert lists(read(made)) == expected
    assert (ours.level, ours.hard) == (3, [late] * 3)
    (line,) = said
    assert line.startswith("Learning changes while it is read or trained on (level)")


def test_a_data_set_that_is_changed_while_it_is_trained_on_is_read_here_from_the_next_batch_on():
    data = Learning(-1)
    made = SampleSource(
        BatchReader(data, None), SAMPLES, WorkerSettings(1, persistent=False, are_asked_for=False), FeedTimes()
    )
    levels = []
    for batch in read(made):
        levels.append(int(batch[0, 1]))
        data.level += 1
    assert levels == list(range(7))


def test_workers_that_were_asked_for_are_the_users_whatever_the_data_set_learns():
    made = SampleSource(BatchReader(Learning(4), None), SAMPLES, WorkerSettings(1, persistent=False), FeedTimes())
    assert [int(torch.cat(list(read(made)))[:, 1].max()) for _ in range(2)] == [1, 1]
    assert made.settings.count == 1


def padded(samples):
    return torch.zeros(len(samples), 50)


@pytest.mark.parametrize("collate", [None, padded], ids=["torch's collating", "a collate_fn"])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_worker_whose_first_batch_has_no_room_in_shared_memory_says_so_instead(monkeypatch, collate, persistent):
    monkeypatch.setattr(workers, "free_shared_memory", lambda: 1000)  # and a batch has 600 bytes
    made = source(lambda index: torch.zeros(50), 1, collate, persistent=persistent)
    with pytest.raises(DataError, match=r"^1 workers with 2 batches of .* of /dev/shm.*docker --shm-size"):
        list(read(made))
    monkeypatch.setattr(workers, "free_shared_memory", lambda: 1200)
    assert len(list(read(source(lambda index: torch.zeros(50), 1, collate, persistent=persistent)))) == 7


def test_what_is_read_in_this_process_needs_no_shared_memory(monkeypatch):
    monkeypatch.setattr(workers, "free_shared_memory", lambda: 10)
    assert len(list(read(source(lambda index: torch.zeros(50))))) == 7


class Told:
    """Writes into a pipe where it is collected."""

    def __init__(self, pipe):
        self.pipe, self.itself = pipe, self

    def __del__(self):
        os.write(self.pipe, f"{os.getpid()} ".encode())


def collecting(index):
    gc.collect()
    return torch.tensor(float(gc.isenabled()))


@pytest.mark.parametrize("is_on", [True, False])
def test_what_is_dead_when_workers_start_is_not_collected_in_them_and_they_collect_as_the_process_does(is_on):
    reading, writing = os.pipe()
    with gc_paused():
        Told(writing)
        if is_on:
            gc.enable()
        (batch, *_) = list(read(source(collecting, 1)))
        assert gc.isenabled() is is_on
    assert batch.tolist() == [float(is_on)] * 3
    while not select.select([reading], [], [], 0)[0]:
        gc.collect()  # does nothing while one that a thread began goes on, which does not see what is dead since
    assert os.read(reading, 100).decode().split() == [str(os.getpid())]  # once, and here
    os.close(reading), os.close(writing)


@pytest.mark.parametrize("is_persistent", [True, False])
def test_workers_of_a_source_in_a_reference_cycle_end_when_they_are_asked(monkeypatch, is_persistent):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 60.0)  # however busy the machine is
    before = set(multiprocessing.active_children())
    made = source(torch.tensor, 2, persistent=is_persistent)
    made.itself, made.batches = made, read(made)
    next(made.batches)
    started = [child for child in multiprocessing.active_children() if child not in before]
    assert len(started) == 2
    del made
    gc.collect()
    for worker in started:
        worker.join()
    assert [worker.exitcode for worker in started] == [0, 0]  # and not the signal with which torch ends the others


def test_epochs_of_kept_workers_keep_their_queues_once(monkeypatch):
    kept = []
    monkeypatch.setattr(samples, "keep_queues_from_collector", kept.append)
    made = source(torch.tensor, 1)
    for _ in range(3):
        list(read(made))
    assert len(kept) == 1
