"""Where capturing does not pay it is not tried, and what a failed attempt took is given back."""

import gc

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from brim.engine.captured.payoff.decision import Pace
from brim.engine.captured.payoff.eager_pace import EagerPace

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def capture_is_tried():
    """Here it is decided as for users."""


def wide():
    return nn.Sequential(nn.Linear(4096, 8192), nn.ReLU(), nn.Linear(8192, 8192), nn.ReLU(), nn.Linear(8192, 1))


def wide_rows():
    x = torch.randn(4096 * 40, 4096, generator=torch.Generator().manual_seed(0))
    return x, x.sum(1, keepdim=True)


@pytest.fixture
def pace_of_a_small_model(monkeypatch):
    """On a machine that nobody else uses; what is read on others depends on them."""
    monkeypatch.setattr(EagerPace, "read", lambda self, wait=False: Pace(0.001, 0.1))


@pytest.mark.usefixtures("pace_of_a_small_model")
def test_a_short_run_is_not_captured(twins):
    eager, tried = twins(twins.mlp, twins.rows(), "auto", epochs=2)
    assert tried.equals(eager)
    assert tried.report.replays == 0 and tried.report.seconds == 0
    assert "steps that are left" in tried.report.reason


@pytest.mark.usefixtures("pace_of_a_small_model")
def test_a_long_run_of_a_small_model_is(twins):
    tried = twins.train(twins.mlp, twins.rows(), "auto", epochs=300)
    assert tried.report.captured and tried.report.replays > 5_000


@pytest.mark.usefixtures("gpu_to_itself")
def test_a_busy_device_is_not_captured_and_nothing_is_reserved_for_it(twins):
    eager, tried = twins(wide, wide_rows(), "auto", batch_size=4096, epochs=2)
    assert tried.equals(eager)
    assert "the GPU is the limit" in tried.report.reason and tried.report.seconds == 0, tried.report


def test_a_schedule_that_moves_betas_is_refused_before_anything_is_tried(twins):
    settings = {"scheduler": lambda made: OneCycleLR(made, max_lr=0.01, total_steps=60)}
    eager, tried = twins(twins.mlp, twins.rows(), "auto", **settings)
    assert tried.equals(eager)
    assert "cycle_momentum=False" in tried.report.reason and tried.report.seconds == 0


@pytest.mark.usefixtures("pace_of_a_small_model")
def test_eighty_steps_of_four_shapes_are_eager(twins):
    x, y = twins.rows(3200)
    lengths = [32, 48, 16, 40] * 20
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    batches = [(x[a : a + n], y[a : a + n]) for a, n in zip(starts, lengths, strict=True)]
    eager, tried = twins(twins.mlp, lambda: batches, "auto", epochs=1)
    assert tried.equals(eager) and tried.report.seconds == 0


@pytest.mark.usefixtures("pace_of_a_small_model")
def test_what_a_refused_attempt_reserved_is_given_back(twins, monkeypatch):
    from brim.engine.captured import trial

    def gains_nothing(gain):
        raise trial.Refusal("gains nothing")

    monkeypatch.setattr(trial, "check_gain", gains_nothing)
    monkeypatch.setattr(trial, "check_host_share", lambda *_: None)
    x = torch.randn(640, 1024)
    model = lambda: nn.Sequential(nn.Linear(1024, 4096), nn.Tanh(), nn.Linear(4096, 1))  # noqa: E731

    def most_reserved(how):
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        trained = twins.train(model, (x, x.sum(1, keepdim=True)), how, epochs=300)
        return trained.trainer._run.guard.watch.most_reserved, trained.report

    eager, _ = most_reserved("off")
    tried, report = most_reserved("auto")
    assert report.seconds > 0 and "gains nothing" in report.reason
    assert tried <= eager + (68 << 20)  # cuBLAS keeps 32 MiB for a stream and thread: of the forward and backward pass
