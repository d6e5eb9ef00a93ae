"""Recurrent layers through cuDNN: shapes and types as torch's own, and gradients for everything."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from brim.hardware.cards import H200
from brim.memory import forecast
from brim.memory.as_cuda.mode import as_cuda
from brim.memory.trace.trace import Recorder

KINDS = [nn.LSTM, nn.GRU, nn.RNN]
SETTINGS = [
    {}, {"batch_first": True}, {"num_layers": 3}, {"bidirectional": True}, {"bias": False},
    {"num_layers": 2, "dropout": 0.5, "bidirectional": True, "batch_first": True},
]  # fmt: skip


def record(kind, settings: dict, precision: torch.dtype | None = None):
    """Shapes of the results and the types of all gradients, and the trace."""
    recorder = Recorder(H200, (2, 11))
    with as_cuda(H200, (2, 11), recorder), recorder:
        layer, x = kind(6, 10, **settings), torch.empty(7, 5, 6, requires_grad=True)
        recorder.enter("forward")
        recorder.watching = True
        with torch.autocast("cuda", precision, enabled=precision is not None):
            output, states = layer(x)
        recorder.enter("backward")
        output.float().sum().backward()
        states = states if isinstance(states, tuple) else (states,)
        for tensor in (x, *layer.parameters()):
            assert tensor.grad.shape == tensor.shape
            assert tensor.grad.dtype == tensor.dtype
        shapes = [tuple(output.shape), *(tuple(state.shape) for state in states)]
        return shapes, output.dtype, recorder.finish()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_shapes_are_those_of_torch_and_gradients_reach_everything(kind, settings: dict) -> None:
    output, states = kind(6, 10, **settings)(torch.empty(7, 5, 6))
    states = states if isinstance(states, tuple) else (states,)
    shapes, dtype, _ = record(kind, settings)
    assert shapes == [tuple(output.shape), *(tuple(state.shape) for state in states)]
    assert dtype == torch.float32


def test_projections() -> None:
    assert record(nn.LSTM, {"proj_size": 4})[0] == [(7, 5, 4), (1, 5, 4), (1, 5, 10)]


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_under_autocast_the_output_is_in_lower_precision_and_gradients_are_not(kind, precision: torch.dtype) -> None:
    assert record(kind, {"num_layers": 2}, precision)[1] == precision


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_one_call_of_cudnn(kind) -> None:
    operators = {storage.operator for storage in record(kind, {"num_layers": 2})[2].storages}
    assert {"aten._cudnn_rnn.default", "aten._cudnn_rnn_backward.default"} <= operators


def test_the_state_of_dropout_is_made_once() -> None:
    trace = record(nn.LSTM, {"num_layers": 2, "dropout": 0.5})[2]
    assert sum(storage.operator == "dropout state of cuDNN" for storage in trace.storages) == 1
    trace = record(nn.LSTM, {"num_layers": 2})[2]
    assert not any(storage.operator == "dropout state of cuDNN" for storage in trace.storages)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_cells_train(cell, precision: str) -> None:
    def loss(state):
        return (state[0] if isinstance(state, tuple) else state).float().sum()

    found = forecast(
        lambda: cell(6, 10), lambda n: ((torch.randn(n, 6),), {}), loss, batch_size=4, card=H200, precision=precision
    )
    assert found.parts["parameters"] > 0


class Packed(nn.Module):
    def __init__(self, kind) -> None:
        super().__init__()
        self.body = kind(6, 10, batch_first=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.body(packed)[0], batch_first=True)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences(kind) -> None:
    def batch(n: int):
        return (torch.randn(n, 5, 6), torch.arange(n) % 5 + 1), {}

    small, large = (forecast(lambda: Packed(kind), batch, batch_size=n, card=H200).allocated for n in (8, 4096))
    assert 0 < small < large
