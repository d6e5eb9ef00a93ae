import pytest
import torch
from helpers.faults import ran_out
from hypothesis import given
from hypothesis import strategies as st

from brim.data.batches import prefetch
from brim.data.batches.prefetch import DevicePrefetcher, dense_strides, tensors_of
from brim.errors import CannotFit


class Sent:
    """A batch that needs no copying."""

    def __init__(self, batch):
        self.batch = batch

    def receive(self):
        return self.batch


class OnAnyMachine(DevicePrefetcher):
    """Runs ahead as it does for a GPU."""

    def __init__(self, ahead=1):
        super().__init__("cpu", ahead=ahead)

    def __call__(self, batches):
        return self._run_ahead(batches)

    def send(self, batch):
        return Sent(batch)


def failing_after(count, error):
    yield from range(count)
    raise error


@pytest.fixture(params=["plain", "ahead"])
def prefetcher(request):
    return DevicePrefetcher("cpu") if request.param == "plain" else OnAnyMachine(ahead=2)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
def test_every_batch_comes_once_and_in_order(prefetcher, count):
    batches = [torch.full((2,), at) for at in range(count)]
    for _ in range(2):
        assert [batch.tolist() for batch in prefetcher(iter(batches))] == [[at, at] for at in range(count)]


def test_nested_batches_come_in_their_containers():
    batch = {"x": torch.ones(2), "pair": (torch.zeros(3), "text"), "none": None}
    (moved,) = DevicePrefetcher("cpu")(iter([batch]))
    assert type(moved["pair"]) is tuple
    assert moved["x"].tolist() == [1, 1]
    assert (moved["pair"][1], moved["none"]) == ("text", None)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_an_error_comes_in_its_turn_after_the_batches_before_it(prefetcher, count):
    epoch, seen = prefetcher(failing_after(count, ValueError("sample 7"))), []
    with pytest.raises(ValueError, match="sample 7"):
        seen.extend(epoch)
    assert seen == list(range(count))


def test_the_error_is_the_very_one_that_was_raised():
    error = ValueError("sample 7")
    with pytest.raises(ValueError, match="sample 7") as caught:
        list(OnAnyMachine()(failing_after(3, error)))
    assert caught.value is error


def test_after_an_error_nothing_more_is_asked_for():
    asked = []

    class Source:
        def __iter__(self):
            return self

        def __next__(self):
            asked.append(len(asked))
            if len(asked) == 3:
                raise ValueError
            return len(asked)

    epoch = OnAnyMachine(ahead=4)(iter(Source()))
    assert [next(epoch), next(epoch)] == [1, 2]
    with pytest.raises(ValueError):
        next(epoch)
    assert len(asked) == 3


def test_a_batch_that_cannot_be_sent_is_an_error_in_its_turn(monkeypatch):
    prefetcher = OnAnyMachine(ahead=2)
    monkeypatch.setattr(prefetcher, "send", lambda batch: Sent(1 / batch))
    epoch = prefetcher(iter([1, 2, 0, 4]))
    assert [next(epoch), next(epoch)] == [1, 0.5]
    with pytest.raises(ZeroDivisionError):
        next(epoch)


@given(st.integers(0, 12), st.integers(0, 5))
def test_no_more_than_so_many_batches_are_asked_for_ahead(count, ahead):
    asked = []
    source = (asked.append(at) or at for at in range(count))
    for handed_out, batch in enumerate(OnAnyMachine(ahead)(source), start=1):
        assert batch == handed_out - 1
        assert len(asked) == min(count, handed_out + ahead)
    assert len(asked) == count


def test_for_batches_that_are_there_already_nothing_is_read_ahead(monkeypatch):
    monkeypatch.setattr(prefetch, "is_there", lambda batch, device: batch < 3)
    asked = []
    source = (asked.append(at) or at for at in range(6))
    ahead = [len(asked) - handed_out for handed_out, _ in enumerate(OnAnyMachine(ahead=2)(source), start=1)]
    assert ahead == [0, 0, 0, 2, 1, 0]
    assert list(OnAnyMachine()(iter([0, 5, 1, 5, 5, 2]))) == [0, 5, 1, 5, 5, 2]


def test_nothing_is_read_before_the_first_batch_is_asked_for(prefetcher):
    asked = []
    prefetcher(asked.append(at) or at for at in range(3))
    assert asked == []


def test_a_loop_that_is_left_early_closes_its_source_and_the_next_one_starts_anew(prefetcher):
    closed = []

    def source():
        try:
            yield from range(10)
        finally:
            closed.append(True)

    for _ in range(2):
        for batch in prefetcher(source()):
            if batch == 3:
                break
    assert closed == [True, True]
    assert list(prefetcher(source())) == list(range(10))


def test_the_tensors_of_a_batch_come_in_its_order():
    x, y, z = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    assert [len(found) for found in tensors_of({"b": z, "a": [x, ("text", y)]})] == [3, 1, 2]


@pytest.mark.parametrize(
    "leaf",
    [
        torch.zeros(2, 3),
        torch.zeros(2, 3).t(),
        torch.zeros(2, 4, 3, 3).to(memory_format=torch.channels_last),
        torch.zeros(4, 6)[::2, ::3],
        torch.zeros(3).expand(2, 3),
        torch.zeros(()),
        torch.zeros(0, 3),
    ],
    ids=["rows", "columns", "channels last", "with gaps", "expanded", "a number", "empty"],
)
def test_strides_are_those_that_a_copy_to_another_device_has(leaf):
    assert dense_strides(leaf) == leaf.to("meta").stride()


# Running out of memory while running ahead


class Short(OnAnyMachine):
    """Cannot send at these calls."""

    def __init__(self, *numbers, ahead=1):
        super().__init__(ahead)
        self.numbers, self.calls = numbers, 0

    def send(self, batch):
        self.calls += 1
        if self.calls in self.numbers:
            raise ran_out()
        return super().send(batch)


@pytest.mark.parametrize("ahead", [1, 2, 3])
@pytest.mark.parametrize("numbers", [(2,), (3,), (2, 4), (4, 6, 8), (6,), (2, 5, 7)])
def test_a_batch_there_was_no_memory_for_is_held_back_and_none_is_lost(ahead, numbers):
    prefetcher = Short(*numbers, ahead=ahead)
    assert [int(batch) for batch in prefetcher(iter(torch.arange(6)))] == list(range(6))


def test_a_batch_that_does_not_fit_alone_is_an_error_in_its_turn():
    seen = []
    with pytest.raises((CannotFit, torch.OutOfMemoryError)):
        for batch in Short(3, 4)(iter(torch.arange(6))):
            seen.append(int(batch))
    assert seen == [0, 1]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_source_that_runs_out_of_memory_is_an_error_in_its_turn(count):
    seen = []
    with pytest.raises(torch.OutOfMemoryError):
        seen.extend(OnAnyMachine()(failing_after(count, ran_out())))
    assert seen == list(range(count))


def test_floating_point_tensors_come_in_the_type_asked_for():
    batch = {"x": torch.tensor([1.0, 0.1]), "y": [torch.tensor([2]), torch.tensor([True])], "name": "a"}
    (found,) = DevicePrefetcher("cpu", floats=torch.bfloat16)(iter([batch]))
    assert torch.equal(found["x"], batch["x"].bfloat16()) and found["x"].dtype == torch.bfloat16
    assert found["y"][0].dtype == torch.int64 and found["y"][1].dtype == torch.bool and found["name"] == "a"
    assert batch["x"].dtype == torch.float32
