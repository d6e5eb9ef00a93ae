"""Packed sequences: the shapes and values of torch, with lengths that are known, unknown or given as a list."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from brim.errors import ModelError
from brim.hardware.cards import H200
from brim.memory import Forecast, forecast
from brim.memory.as_cuda.mode import as_cuda
from brim.memory.as_cuda.packed import UNKNOWN_LENGTHS
from brim.memory.trace.trace import Recorder

TIME = 12


class Reader(nn.Module):
    """Packs, reads and pads, as recurrent models do."""

    def __init__(self, lengths_as=lambda lengths: lengths.cpu(), enforce_sorted: bool = False) -> None:
        super().__init__()
        self.body = nn.LSTM(16, 32, num_layers=2, bidirectional=True, batch_first=True)
        self.lengths_as, self.enforce_sorted = lengths_as, enforce_sorted

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, self.lengths_as(lengths), True, self.enforce_sorted)
        output, lengths = pad_packed_sequence(self.body(packed)[0], True, total_length=TIME)
        mask = torch.arange(TIME, device=x.device) < lengths[:, None].to(x.device)
        return (output * mask[..., None]).sum(1)


def falling(n: int) -> torch.Tensor:
    return torch.arange(n, 0, -1).clamp(max=TIME)


def predict(model, lengths=falling, n: int = 8) -> Forecast:
    return forecast(model, lambda n: ((torch.randn(n, TIME, 16), lengths(n)), {}), batch_size=n, card=H200)


@pytest.mark.matrix(3)
@pytest.mark.parametrize("enforce_sorted", [False, True])
@pytest.mark.parametrize(
    "lengths_as", [lambda x: x, lambda x: x.cpu(), lambda x: x.tolist()], ids=["as is", "cpu", "list"]
)
def test_known_lengths_are_used(lengths_as, enforce_sorted: bool) -> None:
    found = predict(lambda: Reader(lengths_as, enforce_sorted))
    assert found.notes == ()
    assert (
        found.allocated
        < predict(lambda: Reader(lengths_as, enforce_sorted), lambda n: torch.full((n,), TIME)).allocated
    )


@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_a_batch_of_real_tensors_counts_as_one_of_fake_ones(enforce_sorted: bool) -> None:
    real = falling(8)
    model = lambda: Reader(enforce_sorted=enforce_sorted)  # noqa: E731
    assert predict(model, lambda n: real) == predict(model)


@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_unknown_lengths_are_the_longest_with_a_note(enforce_sorted: bool) -> None:
    model = lambda: Reader(enforce_sorted=enforce_sorted)  # noqa: E731
    unknown = predict(model, lambda n: torch.empty(n, dtype=torch.long))
    assert unknown.notes == (UNKNOWN_LENGTHS,)
    assert unknown.allocated == predict(model, lambda n: torch.full((n,), TIME)).allocated


def test_unknown_lengths_that_are_asked_for_as_numbers_are_told() -> None:
    found = predict(lambda: Reader(lambda x: x.tolist()), lambda n: torch.empty(n, dtype=torch.long))
    assert "that only the data knows: 1 was taken" in found.notes[0]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.booleans(), st.integers(0, 3))
def test_shapes_and_lengths_are_those_of_torch(lengths: list[int], batch_first: bool, more: int) -> None:
    def run():
        x = torch.zeros(len(lengths), 9, 3) if batch_first else torch.zeros(9, len(lengths), 3)
        packed = pack_padded_sequence(x, torch.tensor(lengths), batch_first, enforce_sorted=False)
        return packed, *pad_packed_sequence(packed, batch_first, total_length=max(lengths) + more)

    right, padded, known = run()
    recorder = Recorder(H200, (2, 11))
    with as_cuda(H200, (2, 11), recorder), recorder:
        fake, fake_padded, fake_lengths = run()
        assert (fake.data.shape, fake_padded.shape) == (right.data.shape, padded.shape)
        assert recorder.numbers(fake.batch_sizes) == right.batch_sizes.tolist()
        assert recorder.numbers(fake_lengths) == known.tolist()


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        (lambda n: torch.arange(n) + 1, "lengths must fall when enforce_sorted is True; pass enforce_sorted=False"),
        (lambda n: torch.zeros(n, dtype=torch.long), "the length of every sequence must be at least 1"),
        (lambda n: torch.ones(n + 1, dtype=torch.long), "9 lengths were given for a batch of 8 sequences"),
    ],
    ids=["not sorted", "empty", "too many"],
)
def test_what_torch_refuses_is_refused(lengths, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        predict(lambda: Reader(enforce_sorted=True), lengths)


def test_a_batch_may_be_packed() -> None:
    def batch(n: int):
        return (pack_sequence([torch.randn(length, 16) for length in range(n, 0, -1)]),), {}

    found = forecast(lambda: nn.GRU(16, 32), batch, lambda output: output[0].data.sum(), batch_size=8, card=H200)
    assert found.notes == ()


def test_what_is_in_a_packed_sequence_may_be_exchanged() -> None:
    class Dropping(Reader):
        def forward(self, x, lengths):
            packed = pack_padded_sequence(x, lengths, True, enforce_sorted=False)
            dropped = PackedSequence(nn.functional.dropout(packed.data), *packed[1:])
            return pad_packed_sequence(self.body(dropped)[0], batch_first=True)[0]

    assert predict(Dropping).notes == ()
