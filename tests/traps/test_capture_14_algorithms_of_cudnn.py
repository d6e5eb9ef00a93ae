"""Capture trap 14: cuDNN chooses algorithms and makes workspaces when a network first runs, which a graph forbids."""

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.gpu


class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM, dropout=0.0):
        super().__init__()
        self.layers, self.out = kind(4, 32, 2, batch_first=True, dropout=dropout), nn.Linear(32, 1)

    def forward(self, x):
        return self.out(self.layers(x.view(-1, 4, 4))[0][:, -1])


class Convolving(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 3), nn.Flatten())
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        return self.out(self.layers(x.view(-1, 1, 4, 4)))


@pytest.fixture(params=[False, True], ids=["", "benchmark"])
def algorithms(request):
    """Without TF32, so that another algorithm rounds a little and no more."""
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = request.param, False
    yield
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize(
    "model",
    [Recurrent, lambda: Recurrent(nn.GRU), lambda: Recurrent(nn.RNN), Convolving],
    ids=["LSTM", "GRU", "RNN", "convolutions"],
)
@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_recurrent_and_convolutional_networks_are_captured(twins, algorithms, model, precision):
    eager, captured = twins(model, twins.rows(650), precision=precision)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= (1e-4 if precision == "32" else 5e-3)


def test_dropout_within_cudnn_is_captured_right_or_refused(twins, algorithms):
    """Its random state is cuDNN's own and not the generator's."""
    tried = twins.train(
        lambda: Recurrent(dropout=0.5), twins.rows(), "auto", optimizer=lambda p: torch.optim.SGD(p, 0.0)
    )
    assert tried.report.captured or tried.report.reason
    still = [twins.rows(32)] * 40
    tried = twins.train(
        lambda: Recurrent(dropout=0.5), lambda: still, "auto", epochs=1, optimizer=lambda p: torch.optim.SGD(p, 0.0)
    )
    assert len(set(tried.losses)) > 30  # each step has a mask of its own
