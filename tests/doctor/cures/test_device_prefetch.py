import collections
import random

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from brim.doctor.cures.batch_moves import BatchMoves
from brim.doctor.cures.device_prefetch import COMPARED, CopiesAhead, is_same, take_batches_ahead

pytestmark = pytest.mark.usefixtures("undone")


class Clones:
    """Stands for a side stream: what a copy holds is settled when it is begun."""

    def __init__(self):
        self.begun, self.finished, self.waits = 0, 0, []

    def begin(self, tensor, device):
        assert device.type == "cpu"
        self.begun += 1
        return tensor.clone()

    def finish(self, begun, host_waits):
        self.finished += 1
        self.waits.append(host_waits)
        return begun


@pytest.fixture
def clones():
    moves, made = BatchMoves("cpu"), Clones()
    CopiesAhead(moves, made).install()
    moves.install()
    take_batches_ahead()
    return made


Pair = collections.namedtuple("Pair", "one other")


class Nested(Dataset):
    def __init__(self, fails_at=None):
        self.fails_at = fails_at

    def __len__(self):
        return 23

    def __getitem__(self, index):
        if index == self.fails_at:
            raise KeyError(index)
        value = torch.tensor(float(index))
        return {"x": value, "rest": [value + 1, str(index), Pair(value + 2, -index)]}


def trained(loader, epochs=3, leave_at=None, change=lambda x: None):
    """The losses of a model that takes what a script of its own copies; the ends of epochs are marked."""
    torch.manual_seed(1)
    weight = torch.ones((), requires_grad=True)
    seen = []
    for _ in range(epochs):
        for number, batch in enumerate(loader):
            change(batch["x"])
            x, pair = batch["x"].to("cpu"), batch["rest"][2].one.to("cpu", torch.float64)
            x = x + torch.rand(())  # the script's own random numbers
            weight.grad = None
            loss = (weight * x).sum() + pair.sum() + sum(map(int, batch["rest"][1])) + batch["rest"][0].sum()
            loss.backward()
            seen.append((loss.item(), weight.grad.item()))
            if number == leave_at:
                break
        seen.append("end")
    return seen


@pytest.mark.parametrize("workers", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
@pytest.mark.parametrize("leave_at", [None, 2])
def test_batches_order_and_random_numbers_are_the_same(request, workers, leave_at):
    def losses():
        torch.manual_seed(0)
        return trained(DataLoader(Nested(), batch_size=4, shuffle=True, **workers), leave_at=leave_at)

    plain = losses()
    clones = request.getfixturevalue("clones")
    assert losses() == plain
    # The first batch shows what is copied; with workers the second was there already.
    batches = 18 if leave_at is None else 9
    ahead = 1 if workers else 0
    assert clones.finished == 2 * (batches - 1 - ahead) and clones.waits == [True] * clones.finished


def test_a_batch_is_copied_before_the_one_before_it_is_done_with(clones):
    loader = DataLoader(Nested(), batch_size=4, num_workers=1)
    begun = []
    for batch in loader:
        begun.append(clones.begun)
        batch["x"].to("cpu")
    assert begun == [0, 1, 2, 3, 4, 4]  # when it is handed out, the next one's copy has begun too


def test_what_is_never_copied_by_the_script_is_not_copied_ahead(clones):
    for batch in DataLoader(Nested(), batch_size=4):
        batch["x"].sum()
    assert clones.begun == 0


def test_a_batch_that_the_script_writes_to_is_copied_as_it_is_then(clones):
    def loader():
        return DataLoader(Nested(), batch_size=4)

    changed = trained(loader(), change=lambda x: x.mul_(2))
    doubled = [loss for loss in changed if loss != "end"]
    assert doubled != [loss for loss in trained(loader()) if loss != "end"]
    assert changed == trained(loader(), change=lambda x: x.copy_(2 * x))


@pytest.mark.parametrize("change", [lambda x: x.mul_(2), lambda x: x.numpy().__imul__(2), lambda x: x.data.mul_(2)])
def test_writing_in_ways_that_leave_no_mark_is_found_out_and_not_copied_ahead(request, change):
    plain = trained(DataLoader(Nested(), batch_size=4), change=change)
    clones = request.getfixturevalue("clones")
    assert trained(DataLoader(Nested(), batch_size=4), change=change) == plain
    assert clones.begun < 20 + COMPARED  # of the other tensor alone, but for the first


def test_whoever_asks_twice_gets_two_tensors_and_other_devices_are_not_answered(clones):
    for batch in DataLoader(Nested(), batch_size=4):
        x = batch["x"]
        one, other = x.to("cpu"), x.to("cpu")
        if clones.finished:
            assert one is not x and other is x and one is not other
        assert x.to("meta").is_meta
    assert clones.finished == 5


def test_a_sample_that_fails_does_so_in_its_turn(clones):
    seen = []
    with pytest.raises(KeyError, match="9"):
        for batch in DataLoader(Nested(fails_at=9), batch_size=4, num_workers=1):
            seen.append(batch["rest"][1])
    assert seen == [("0", "1", "2", "3"), ("4", "5", "6", "7")]


def test_an_empty_loader_and_an_iterator_that_is_over_stay_so(clones):
    assert list(DataLoader(Nested(), batch_size=30, drop_last=True, num_workers=1)) == []
    batches = iter(DataLoader(Nested(), batch_size=12, num_workers=1))
    assert len(list(batches)) == 2
    with pytest.raises(StopIteration):
        next(batches)


def test_a_stream_through_workers_is_the_same(clones):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(torch.arange(7.0))

    loader = DataLoader(Stream(), batch_size=2, num_workers=1)
    assert [[batch.to("cpu").tolist() for batch in loader] for _ in range(2)] == [[[0, 1], [2, 3], [4, 5], [6]]] * 2


class Drawn(torch.utils.data.Sampler):
    def __iter__(self):
        return iter([random.randrange(8), random.randrange(8)] for _ in range(20))

    def __len__(self):
        return 20


def test_random_numbers_that_would_be_drawn_too_early_are_refused(clones):
    data = TensorDataset(torch.arange(8.0))
    with pytest.raises(RuntimeError, match="draws random numbers in the main process"):
        list(DataLoader(data, batch_sampler=Drawn(), num_workers=1))
    assert len(list(DataLoader(data, batch_sampler=Drawn()))) == 20  # here they are drawn when they are due


def test_tensors_are_compared_with_their_types_and_shapes():
    assert is_same(torch.tensor([1, 2]), torch.tensor([1, 2])) and not is_same(torch.ones(2), torch.zeros(2))
    assert not is_same(torch.ones(2), torch.ones(2, dtype=torch.float64)) and not is_same(torch.ones(2), torch.ones(1))
