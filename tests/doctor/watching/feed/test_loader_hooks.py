import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from brim.doctor.watching.feed.batch_costs import BatchCosts
from brim.doctor.watching.feed.loader_hooks import LoaderHooks
from brim.doctor.watching.meters import Meters

PAUSE = 0.01


class Slow(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        time.sleep(PAUSE)
        return torch.full((2,), float(index))


@pytest.fixture
def hooks(unhooked):
    costs = BatchCosts()
    costs.install()
    made = LoaderHooks(Meters(), costs)
    made.install()
    return made


def test_waiting_is_counted_and_batches_are_as_ever(hooks):
    batches = [batch.tolist() for batch in DataLoader(Slow(), batch_size=4)]
    assert batches == [[[i, i] for i in (0.0, 1, 2, 3)], [[i, i] for i in (4.0, 5, 6, 7)]]
    assert hooks.meters.data >= 8 * PAUSE
    assert (hooks.meters.batches, hooks.meters.samples) == (2, 8)
    (seen,) = hooks.seen()
    assert seen.make_seconds >= 4 * PAUSE and seen.make_cpu_seconds < seen.make_seconds
    assert 0 < seen.make_running_seconds < seen.make_seconds
    assert (seen.dataset, seen.batch_size, seen.batch_bytes, seen.batches) == ("Slow", 4, 32, 2)
    assert seen.line.startswith("test_loader_hooks.py:") and not seen.trains


def test_it_is_the_thread_that_trains_that_waits(hooks):
    def train():
        for batch in DataLoader(Slow(), batch_size=1):
            batch.requires_grad_().sum().backward()
            hooks.on_backward()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert hooks.meters.data >= 7 * PAUSE  # but for the first batch, before it was known


def test_what_workers_do_is_timed_in_them(hooks):
    assert len(list(DataLoader(Slow(), batch_size=4, num_workers=2))) == 2
    (seen,) = hooks.seen()
    assert seen.make_seconds >= 4 * PAUSE and seen.worker_starts == 1
    assert 0 < hooks.meters.worker_starts <= hooks.meters.data


def test_a_loader_is_for_training_if_backward_follows_its_batches(hooks):
    train, valid = (DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2) for _ in range(2))
    for _epoch in range(2):
        for _ in train:
            hooks.on_backward()
        for _ in valid:
            assert hooks.in_evaluation
    assert hooks.train is hooks.watched(train) and hooks.meters.evaluation > 0
    assert hooks.meters.samples == 16  # evaluation's are not trained on
    assert [seen.trains for seen in hooks.seen()] == [True, False]
    assert hooks.meters.epochs == 1  # the first began before anybody knew what the loader is for


def test_workers_that_are_started_after_an_evaluation_are_started_for_the_training(hooks):
    train = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2, num_workers=2)
    valid = DataLoader(TensorDataset(torch.ones(2, 2)))
    for _ in train:
        hooks.on_backward()
    list(valid)
    evaluation, starts = hooks.meters.evaluation, hooks.meters.worker_starts
    assert hooks.in_evaluation
    iter(train)
    assert not hooks.in_evaluation and hooks.meters.evaluation > evaluation and hooks.meters.worker_starts > starts


def test_loaders_that_are_read_beside_each_other_are_both_for_training(hooks):
    slow, quick = DataLoader(Slow(), batch_size=1), DataLoader(TensorDataset(torch.ones(16, 2)), batch_size=1)
    others = iter(quick)
    for _ in slow:
        next(others)
        next(others)
        hooks.on_backward()
    assert not hooks.in_evaluation and [seen.trains for seen in hooks.seen()] == [True, True]
    assert hooks.seen()[0].waited > hooks.seen()[1].waited


def test_a_loader_that_is_looked_at_or_read_to_its_end_between_steps_is_not_for_training(hooks):
    train, valid = (DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2) for _ in range(2))
    next(iter(valid))
    for _epoch in range(6):
        for _ in train:
            hooks.on_backward()
        for _ in valid:
            assert hooks.in_evaluation
    assert [seen.trains for seen in sorted(hooks.seen(), key=lambda seen: seen.line)].count(True) == 1


def test_a_loader_that_is_read_without_gradients_is_not_for_training(hooks):
    """A loop that makes its batches itself, and evaluates with a loader every now and then."""
    valid = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2)
    for _ in range(3):
        with torch.no_grad():
            for _ in valid:
                assert hooks.in_evaluation
        assert not hooks.in_evaluation
        hooks.on_backward()
    assert hooks.train is None and hooks.meters.evaluation > 0 and hooks.meters.samples == 0
    assert [seen.trains for seen in hooks.seen()] == [False]


def test_batches_that_were_handed_out_are_handed_out_again(hooks):
    loader = DataLoader(Slow(), batch_size=2)
    for _ in loader:
        hooks.on_backward()
    waited, hooks.replaying = hooks.meters.data, True
    again, values = iter(loader), []
    for _ in range(40):
        values.append(next(again).tolist())
        hooks.on_backward()
    assert hooks.meters.data == waited
    assert len(list(loader)) == 4  # whoever reads it and does not train comes to an end
    assert {tuple(map(tuple, value)) for value in values} == {((i, i), (i + 1, i + 1)) for i in (0.0, 2.0, 4.0, 6.0)}


def test_shapes_that_change_are_counted_but_not_a_short_last_batch(hooks):
    list(DataLoader(TensorDataset(torch.ones(7, 2)), batch_size=2))
    list(DataLoader([torch.ones(n) for n in (3, 4, 5)], batch_size=1))
    assert [seen.shapes for seen in hooks.seen()] == [1, 3]


def test_columns_are_known_by_their_type(hooks):
    data = TensorDataset(torch.ones(8, 2))
    list(DataLoader(torch.utils.data.Subset(data, [1, 2]), batch_size=2))
    list(DataLoader(Slow(), batch_size=2))
    assert [seen.columns for seen in hooks.seen()] == [True, False]


def test_the_end_of_workers_within_the_waiting_for_a_batch_is_counted_once(hooks):
    began = time.perf_counter()
    list(DataLoader(Slow(), batch_size=4, num_workers=1))
    assert hooks.meters.worker_starts <= hooks.meters.data <= time.perf_counter() - began


def test_the_first_batch_of_new_workers_is_part_of_their_start(hooks):
    loader = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2, num_workers=1)
    iterator = iter(loader)
    started = hooks.meters.worker_starts
    next(iterator)
    first = hooks.meters.worker_starts
    next(iterator)
    assert first > started and hooks.meters.worker_starts == first


def test_a_part_of_a_data_set_takes_many_and_reads_them_one_by_one(hooks):
    class Batched(TensorDataset):
        def __getitems__(self, indices):
            return [self[index] for index in indices]

    columns = torch.ones(8, 2)
    for data in (TensorDataset(columns), Batched(columns)):
        list(DataLoader(torch.utils.data.Subset(data, [1, 2]), batch_size=2))
    assert [seen.batched_access for seen in hooks.seen()] == [False, True]


def test_a_data_set_that_keeps_a_frame_is_known(hooks):
    class Frame(list):
        pass

    DataFrame = type("DataFrame", (), {})
    data = Frame([1, 2])
    data.rows = DataFrame()
    list(DataLoader(data, batch_size=2))
    list(DataLoader(torch.utils.data.Subset(data, [0, 1]), batch_size=2))
    assert [seen.frame for seen in hooks.seen()] == [True, True]


def test_a_loader_that_is_made_in_every_epoch_stays_the_same(hooks):
    for _epoch in range(20):
        for _ in DataLoader(Slow(), batch_size=8):
            hooks.on_backward()
    (seen,) = hooks.seen()
    assert (seen.made, seen.batches, seen.trains) == (20, 20, True) and hooks.meters.epochs == 19
    assert seen.make_seconds is not None


def test_two_loaders_of_one_line_that_are_both_there_are_two(hooks):
    both = [DataLoader(Slow(), batch_size=8) for _ in range(2)]
    for loader in both:
        list(loader)
    assert [(seen.made, seen.batches) for seen in hooks.seen()] == [(1, 1), (1, 1)]


def test_an_evaluation_that_is_broken_off_before_the_training_ends_with_its_first_batch(hooks):
    train, valid = (DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2) for _ in range(2))
    with torch.no_grad():
        next(iter(valid))
        assert hooks.in_evaluation
    for _ in train:
        assert not hooks.in_evaluation
        hooks.on_backward()
    assert hooks.meters.samples == 8


def test_a_loader_that_only_the_loop_knows_is_tried_with_whole_batches(hooks):
    weight = torch.ones(1, requires_grad=True)
    for (rows,) in DataLoader(TensorDataset(torch.ones(64, 2)), batch_size=32):
        (weight * rows).sum().backward()
        hooks.on_backward()
        hooks.probe()
    (seen,) = hooks.seen()
    assert seen.was_probed and seen.batched_seconds > 0
