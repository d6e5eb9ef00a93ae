"""Where the time of a step is from."""

import pytest
import torch
from torch import nn

from brim.hardware.cards import H200
from brim.hardware.peaks import USUAL
from brim.memory.forecast import make_job, make_setting
from brim.speed_up import clock
from brim.speed_up.clock import StepClock
from brim.speed_up.rank_batches import RankBatches, ShareFit
from brim.speed_up.step_time import StepTime

WHOLE, HALF = ShareFit(True, 8192, 1, 0), ShareFit(True, 4096, 1, 0)


def rows(n: int):
    return (torch.empty(n, 1024),), {}


@pytest.fixture
def rank_batches() -> RankBatches:
    return RankBatches(make_job(lambda: nn.Linear(1024, 1024), rows), make_setting(H200, "2.11", False))


def test_a_forecast_shrinks_with_the_share(rank_batches: RankBatches) -> None:
    made = StepClock(rank_batches, USUAL)
    assert made.source == "forecast"
    assert made.time(HALF).gpu < made.time(WHOLE).gpu
    assert made.time(HALF).host == made.time(WHOLE).host


def test_slices_and_batches_are_passes(rank_batches: RankBatches) -> None:
    rank_batches.accumulation = 3
    made = StepClock(rank_batches, USUAL)
    sliced = made.time(ShareFit(True, 4096, 2, 0))
    assert sliced.gpu_passes == pytest.approx(2 * made.time(HALF).gpu_passes)
    assert sliced.gpu_optimizer == made.time(HALF).gpu_optimizer


@pytest.mark.parametrize("seconds", [1e-5, 1e-3, 1.0])
def test_a_known_step_sets_the_pace_of_all_shares(rank_batches: RankBatches, seconds: float) -> None:
    made = StepClock(rank_batches, None)
    made.set_by(WHOLE, seconds)
    assert made.source == "given"
    assert made.time(WHOLE).seconds == pytest.approx(seconds)
    assert made.time(HALF).seconds <= seconds * (1 + 1e-9)


def test_what_is_measured_is_measured_once(rank_batches: RankBatches, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measure(job, samples, device):
        asked.append(samples)
        return StepTime(0, 0, 0, samples * 1e-6, 1e-6)

    monkeypatch.setattr(clock, "measure_step", measure)
    made = StepClock(rank_batches, None, torch.device("cpu"))
    assert made.source == "measured"
    assert made.time(WHOLE) == made.time(WHOLE)
    assert made.time(HALF).gpu_passes == pytest.approx(4096e-6)
    assert asked == [8192, 4096]
