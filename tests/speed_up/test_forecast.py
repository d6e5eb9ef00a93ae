"""What more GPUs would bring: the properties that a forecast must have whatever its figures are worth."""

import json

import pytest
import torch
from torch import nn

from brim.errors import ConfigError, ModelError
from brim.hardware.cards import H200, Card
from brim.hardware.links import LINKS, Link
from brim.memory import SpeedUp, speed_up

UNKNOWN = Card("NVIDIA Something New", H200.memory, (9, 0), 100)
WIDE, NARROW = 8192, 64


def layers(width: int, many: int = 4):
    return lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(many)))


def rows(width: int):
    return lambda n: ((torch.empty(n, width),), {})


def of(width: int = WIDE, batch_size: int = 65536, **how) -> SpeedUp:
    how.setdefault("card", H200)
    return speed_up(layers(width), rows(width), batch_size=batch_size, runtime="2.11", **how)


@pytest.fixture(scope="module")
def busy() -> SpeedUp:
    return of()


def gains(made: SpeedUp, strategy: str = "ddp") -> list[float]:
    return [row.speed_up for row in made.rows if row.strategy == strategy]


def test_one_gpu_is_exactly_one(busy: SpeedUp) -> None:
    first = busy.rows[0]
    assert (first.gpus, first.strategy, first.speed_up, first.efficiency, first.exchange) == (1, "single", 1.0, 1.0, 0)
    assert {busy.row(1, strategy) for strategy in ("dp", "ddp", "fsdp")} == {first}


def test_no_speed_up_is_above_the_number_of_gpus(busy: SpeedUp) -> None:
    assert all(0 < row.speed_up <= row.gpus for row in busy.rows)
    assert all(0 < row.efficiency <= 1 for row in busy.rows)


@pytest.mark.slow
def test_not_even_where_one_gpu_must_slice_and_more_need_not() -> None:
    made = of(batch_size=65536, memory="10GiB")
    assert made.rows[0].slices > made.row(8).slices
    assert all(row.speed_up <= row.gpus for row in made.rows)


def test_there_is_a_row_for_each_number_and_way_in_order(busy: SpeedUp) -> None:
    assert [(row.gpus, row.strategy) for row in busy.rows] == [
        (1, "single"), *((gpus, way) for gpus in (2, 4, 8) for way in ("dp", "ddp", "fsdp")),
    ]  # fmt: skip
    assert [(row.gpus, row.share) for row in of(gpus=(8, 2), batch_size=100).rows if row.strategy != "dp"] == [
        (1, 100), (2, 50), (2, 50), (8, 13), (8, 13),
    ]  # fmt: skip


def test_figures_agree_with_each_other(busy: SpeedUp) -> None:
    for row in busy.rows:
        assert row.samples_per_second == pytest.approx(65536 / row.seconds)
        assert row.speed_up == pytest.approx(busy.rows[0].seconds / row.seconds)
        assert row.exchange < row.seconds
        assert row.fits
        assert row.reserved > 0


def test_a_busy_job_gains_and_never_as_much_as_the_gpus_cost(busy: SpeedUp) -> None:
    for strategy in ("ddp", "fsdp"):
        assert gains(busy, strategy) == sorted(gains(busy, strategy))
        assert busy.row(8, strategy).speed_up > 4


def test_a_launch_bound_job_gains_nothing_and_loses_with_dataparallel() -> None:
    made = of(NARROW, batch_size=128)
    assert made.rows[0].launch_bound
    assert max(gains(made)) <= 1
    assert gains(made, "dp") == sorted(gains(made, "dp"), reverse=True)
    assert any("launch-bound" in note for note in made.notes)


def test_a_larger_batch_scales_better() -> None:
    made = [of(batch_size=size, gpus=(1, 8)) for size in (512, 8192, 131_072)]
    for strategy in ("dp", "ddp", "fsdp"):
        by_batch = [one.row(8, strategy).speed_up for one in made]
        assert by_batch == sorted(by_batch)
        assert by_batch[0] < by_batch[-1]


def test_more_bandwidth_never_hurts() -> None:
    made = [of(link=f"{speed}GB/s", gpus=(1, 8)) for speed in (1, 10, 100, 1000)]
    for strategy in ("dp", "ddp", "fsdp"):
        by_link = [one.row(8, strategy).speed_up for one in made]
        assert by_link == sorted(by_link)


def test_the_gradients_of_a_large_model_are_too_much_for_a_slow_link() -> None:
    assert of(batch_size=1024, link="ethernet-10", gpus=(1, 8)).row(8).speed_up < 1


def test_over_a_network_there_is_no_dataparallel() -> None:
    assert {row.strategy for row in of(link="ethernet-100", gpus=(1, 2)).rows} == {"single", "ddp", "fsdp"}


def test_the_users_expectation_is_beside_dataparallel(busy: SpeedUp) -> None:
    assert [busy.row(gpus, "dp").expected for gpus in (2, 4, 8)] == [(1.8, 1.9), (3.2, 3.6), (5.5, 6.5)]
    assert busy.row(8, "ddp").expected is None
    assert of(gpus=(1, 3), batch_size=64).row(3, "dp").expected is None


def test_a_step_that_is_given_is_that_of_one_gpu(busy: SpeedUp) -> None:
    made = of(step_ms=500.0)
    assert made.source == "given"
    assert made.rows[0].seconds == pytest.approx(0.5)
    assert made.rows[0].seconds < busy.rows[0].seconds
    assert made.row(8).speed_up < busy.row(8).speed_up  # the same exchange beside less computing


def test_a_step_that_is_shorter_than_its_launches_is_launch_bound() -> None:
    made = of(step_ms=0.1)
    assert made.rows[0].seconds == pytest.approx(1e-4)
    assert max(gains(made)) <= 1


def test_a_card_without_a_data_sheet_needs_the_step() -> None:
    with pytest.raises(ConfigError, match=r"how fast NVIDIA Something New computes is not known.*--step-ms"):
        of(card=UNKNOWN)
    assert of(card=UNKNOWN, step_ms=100, gpus=(1, 2)).row(2).speed_up > 1


def test_links_are_the_card_s_or_those_asked_for(busy: SpeedUp) -> None:
    assert busy.link == LINKS["nvlink4"]
    own = Link("mine", 1e9, 1e-6, measured=True)
    assert of(link=own, gpus=(1, 2)).link == own


def test_accumulated_batches_are_exchanged_once() -> None:
    once, often = of(batch_size=4096, gpus=(1, 8)), of(batch_size=4096, gpus=(1, 8), accumulation=8)
    assert often.row(8).speed_up > once.row(8).speed_up
    assert often.rows[0].samples_per_second == pytest.approx(8 * 4096 / often.rows[0].seconds)
    assert often.row(8, "dp").exchange == pytest.approx(8 * once.row(8, "dp").exchange)


def test_what_fits_nowhere_is_told_and_forecast_all_the_same() -> None:
    made = of(memory="1GiB", gpus=(1, 2))
    assert not any(row.fits for row in made.rows)
    assert all(row.seconds > 0 for row in made.rows)
    assert any("had the memory" in note for note in made.notes)


def test_on_the_cpu_shares_are_measured_and_ranks_are_ddp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    job = {"model": layers(256), "batch": lambda n: ((torch.randn(n, 256),), {}), "batch_size": 512}
    made = speed_up(**job, measure=True, link="100GB/s", gpus=(1, 2), precision="auto")
    assert (made.device, made.source, made.precision) == ("this CPU", "measured", "32")
    assert [(row.gpus, row.strategy, row.fits) for row in made.rows] == [(1, "single", None), (2, "ddp", None)]
    assert 0 < made.row(2).speed_up <= 2


def test_what_is_done_is_told() -> None:
    told: list[str] = []
    of(gpus=(1, 2), batch_size=64, tell=told.append)
    assert told == ["one GPU", "2 GPUs, DP", "2 GPUs, DDP", "2 GPUs, FSDP"]


def test_json_comes_back_as_it_was(busy: SpeedUp) -> None:
    plain = busy.as_json()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["link"]["name"] == "nvlink4"
    assert len(plain["rows"]) == 10
    assert {"gpus", "strategy", "seconds", "speed_up", "efficiency", "expected", "fits"} <= set(plain["rows"][0])
    assert plain["notes"] == list(busy.notes)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"gpus": ()}, "gpus is empty"),
        ({"gpus": (1, 0)}, "gpus=0 must be a whole number of at least 1"),
        ({"gpus": (1, 2.0)}, "gpus=2.0 must be a whole number"),
        ({"gpus": (2, 2)}, "gpus=2,2 names a number twice"),
        ({"step_ms": 0}, "step_ms=0 must be milliseconds"),
        ({"step_ms": float("nan")}, "step_ms=nan must be milliseconds"),
        ({"step_ms": True}, "step_ms=True must be milliseconds"),
        ({"link": "string"}, "there is no link 'string'"),
        ({"measure": True}, "leave out the card"),
        ({"measure": True, "card": None, "step_ms": 1.0}, "either measured or given"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"memory": "much"}, "memory='much'"),
        ({"card": "4091"}, "no card is known as '4091'"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(how: dict, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        of(**{"batch_size": 64, **how})
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_error_of_the_model_is_the_user_s() -> None:
    with pytest.raises(ModelError, match="the forward pass failed"):
        speed_up(layers(8), rows(9), batch_size=8, card=H200)
