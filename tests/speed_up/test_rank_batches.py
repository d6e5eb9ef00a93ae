"""Rank batches of a batch: traced once, and as large as a memory forecast says."""

import pytest
import torch
from torch import nn

from brim.hardware.cards import H200
from brim.memory import forecast
from brim.memory.forecast import make_job, make_setting
from brim.memory.planning.plan import plan
from brim.memory.planning.window import StepBatches
from brim.speed_up import rank_batches
from brim.speed_up.rank_batches import RankBatches

WIDTH = 512
MIB = 1 << 20


def build() -> nn.Module:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))


def rows(n: int):
    return (torch.empty(n, WIDTH),), {}


def make(limit: int | None = None, precision: str = "32", **batches) -> RankBatches:
    job = make_job(build, rows, precision=precision)
    return RankBatches(job, make_setting(H200, "2.11", False), limit, StepBatches(**batches))


def test_a_size_is_traced_once_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    count = rank_batches.count_work
    monkeypatch.setattr(rank_batches, "count_work", lambda *of: asked.append(of[1]) or count(*of))
    some = make()
    for strategy in ("dp", "ddp", "fsdp"):
        assert some.fit(256, strategy, 4).fits
        assert some.work(256).samples == 256
    assert 256 in asked
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_what_is_reserved_is_what_the_memory_forecast_says(strategy: str) -> None:
    known = forecast(build, rows, batch_size=256, card=H200, runtime="2.11", gpus=4, strategy=strategy)
    assert make().fit(256, strategy, 4).reserved == known.reserved


def test_gradients_of_16_bits_are_sent_in_32() -> None:
    job = make_job(lambda: nn.Linear(4096, 4096), lambda n: ((torch.empty(n, 4096),), {}), precision="bf16-true")
    some = RankBatches(job, make_setting(H200, "2.11", False))
    buckets = some.fit(8, "ddp", 2).reserved - some.fit(8, "single", 1).reserved
    assert buckets == 4 * 4096 * 4096 + 2 * MIB


@pytest.mark.parametrize("precision", ["32", "bf16-true"])
def test_the_window_of_a_plan_is_counted(precision: str) -> None:
    how = {"accumulation": 3, "prefetched": 1, "precision": precision}
    planned = plan(build, rows, batch_size=4096, card=H200, runtime="2.11", **how)
    assert make(**how).fit(4096, "single", 1).reserved == planned.forecast.reserved


def test_what_does_not_fit_is_sliced_and_what_cannot_be_sliced_does_not_fit() -> None:
    sliced = make(limit=200 * MIB).fit(16384, "ddp", 2)
    assert sliced.fits
    assert sliced.slices > 1
    assert sliced.slices * sliced.micro_batch >= 16384
    whole = make(limit=200 * MIB, sliceable=False).fit(16384, "ddp", 2)
    assert (whole.fits, whole.micro_batch, whole.slices) == (False, 16384, 1)


def test_dataparallel_takes_as_much_as_ddp() -> None:
    assert make().fit(256, "dp", 4) == make().fit(256, "ddp", 4)
