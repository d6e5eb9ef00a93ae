"""LSTMCell and GRUCell as CUDA's fused kernels compute them: two products, one kernel, and what autograd keeps."""

import threading

import pytest
import torch
from torch import nn

from brim.hardware.cards import H200
from brim.memory import forecast
from brim.memory.as_cuda.mode import as_cuda
from brim.memory.trace.trace import DEATH, Recorder

BATCH, WIDTH, FEATURES, STEPS = 64, 128, 32, 12
STATE = BATCH * WIDTH  # elements
CELLS = [nn.LSTMCell, nn.GRUCell]
KEPT = {nn.LSTMCell: 3 * 4 + 2, nn.GRUCell: 2 * 3 + 5 + 1}  # states of a step: gates, workspace, states


class Loop(nn.Module):
    """A cell, called for every step of a window."""

    def __init__(self, kind: type[nn.Module], bias: bool = True) -> None:
        super().__init__()
        self.cell = kind(FEATURES, WIDTH, bias=bias)
        self.has_memory = kind is nn.LSTMCell

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        hidden = memory = windows.new_zeros(len(windows), WIDTH)
        for x in windows.unbind(1):
            if self.has_memory:
                hidden, memory = self.cell(x, (hidden, memory))
            else:
                hidden = self.cell(x, hidden)
        return hidden


def activations(kind: type[nn.Module], steps: int, precision: str, bias: bool = True) -> int:
    made = forecast(
        lambda: Loop(kind, bias), lambda n: ((torch.empty(n, steps, FEATURES),), {}), lambda out: out.float().sum(),
        batch_size=BATCH, precision=precision, card=H200,
    )  # fmt: skip
    return made.parts["activations"]


@pytest.mark.matrix(2)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", CELLS)
def test_a_step_keeps_gates_workspace_and_states(kind: type[nn.Module], bias: bool) -> None:
    more = activations(kind, STEPS, "32", bias) - activations(kind, STEPS - 4, "32", bias)
    assert more == 4 * 4 * (KEPT[kind] * STATE + BATCH * FEATURES)


@pytest.mark.matrix(2)
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("kind", CELLS)
def test_under_autocast_a_step_keeps_them_in_lower_precision(kind: type[nn.Module], precision: str) -> None:
    more = activations(kind, STEPS, precision) - activations(kind, STEPS - 4, precision)
    assert more == 4 * 2 * (KEPT[kind] * STATE + BATCH * FEATURES) + 4 * 4 * BATCH * FEATURES


@pytest.mark.parametrize("kind", CELLS)
def test_weights_are_cast_once_for_all_steps(kind: type[nn.Module]) -> None:
    recorder = Recorder(H200, (2, 11))
    with as_cuda(H200, (2, 11), recorder), recorder:
        loop, windows = Loop(kind), torch.empty(BATCH, STEPS, FEATURES)
        recorder.enter("forward")
        recorder.watching = True
        with torch.autocast("cuda", torch.bfloat16):
            output = loop(windows)
        output.float().sum().backward()
        assert {parameter.grad.dtype for parameter in loop.parameters()} == {torch.float32}
        weight = 2 * loop.cell.weight_hh.numel()
        trace = recorder.finish()
    casts = [
        n for n, s in enumerate(trace.storages) if (s.size, s.phase) == (weight, "forward") and "copy" in s.operator
    ]
    assert len(casts) == 1
    assert (casts[0], DEATH) in trace.events


@pytest.mark.parametrize("kind", CELLS)
def test_cells_of_another_thread_compute_as_ever_while_a_forecast_is_made(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    loop, windows, found = Loop(kind), torch.randn(3, STEPS, FEATURES), []
    with torch.no_grad():
        before = loop(windows)
    with as_cuda(H200, (2, 11), Recorder(H200, (2, 11))):
        thread = threading.Thread(target=lambda: found.append(loop(windows).detach()))
        thread.start()
        thread.join()
    assert torch.equal(found[0], before)
