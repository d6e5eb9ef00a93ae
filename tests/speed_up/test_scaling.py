"""Steps on several GPUs: what must hold whatever the figures, and what was counted by hand."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from brim.hardware.links import Link
from brim.hardware.peaks import Peak
from brim.speed_up.collectives import all_reduce_seconds
from brim.speed_up.scaling import COLLECTIVE, EXCHANGED_WITH_LOSS, REPLICA, STRATEGIES, Together
from brim.speed_up.step_time import StepTime
from brim.speed_up.work import Work

MB = 10**6
LINK = Link("by hand", 10e9, 5e-6)
GPU_BOUND = StepTime(1e-3, 1e-3, 1e-3, 80e-3, 20e-3)
LAUNCH_BOUND = StepTime(30e-3, 30e-3, 10e-3, 1e-3, 1e-3)
SECONDS = st.floats(0, 1)
TIMES = st.builds(StepTime, SECONDS, SECONDS, SECONDS, SECONDS, SECONDS)
STRATEGY = st.sampled_from(STRATEGIES)


def work(gradients: int = 10 * MB) -> Work:
    return Work(8, {}, 1, (gradients,), gradients, blocks=4, modules=10, batch=MB)


@given(STRATEGY, TIMES)
def test_one_gpu_spends_what_it_spends_alone(strategy: str, time: StepTime) -> None:
    spent = Together(1, LINK).spent(strategy, time, work())
    assert (spent.seconds, spent.exchanging) == (time.seconds, 0)


@given(STRATEGY, TIMES, st.integers(2, 64))
def test_a_share_among_others_never_takes_less_than_its_host_and_its_passes(
    strategy: str, time: StepTime, gpus: int
) -> None:
    spent = Together(gpus, LINK).spent(strategy, time, work())
    assert spent.exchanging > 0
    assert spent.seconds >= max(time.host, time.gpu_passes)


@given(STRATEGY, TIMES, st.integers(2, 16), st.floats(1e8, 1e12), st.floats(1, 100))
def test_a_faster_link_never_makes_a_step_longer(
    strategy: str, time: StepTime, gpus: int, slow: float, faster: float
) -> None:
    seconds = [
        Together(gpus, Link("", bandwidth, 1e-6)).spent(strategy, time, work(2000 * MB)).seconds
        for bandwidth in (slow, slow * faster)
    ]
    assert seconds[1] <= seconds[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_huge_model_waits_for_its_gradients(strategy: str) -> None:
    small, huge = (Together(8, LINK).spent(strategy, GPU_BOUND, work(size * MB)) for size in (1, 10_000))
    assert huge.seconds > 5 * small.seconds
    assert huge.exchanging > huge.computing


def test_ddp_exchanges_after_the_backward_pass_and_hides_nothing() -> None:
    spent = Together(4, LINK).spent("ddp", GPU_BOUND, work(100 * MB))
    told = 8 * (EXCHANGED_WITH_LOSS + 1)
    by_hand = all_reduce_seconds(100 * MB, 4, LINK) + all_reduce_seconds(told, 4, LINK) + 2 * COLLECTIVE
    assert spent.exchanging == pytest.approx(by_hand)
    assert spent.computing == pytest.approx(GPU_BOUND.gpu)


def test_ddp_also_copies_its_gradients_where_the_memory_s_speed_is_known() -> None:
    without, with_copies = (
        Together(4, LINK, peak).spent("ddp", GPU_BOUND, work()) for peak in (None, Peak(1e13, 1e13, 1e13, 1e12))
    )
    assert with_copies.exchanging - without.exchanging == pytest.approx(6 * 10 * MB / 0.75e12)


def test_the_host_of_dataparallel_launches_every_forward_pass_itself() -> None:
    spent = Together(8, LINK).spent("dp", LAUNCH_BOUND, work())
    assert spent.computing == pytest.approx(8 * 30e-3 + 30e-3 + 8 * 10 * REPLICA + 10e-3)


def test_dataparallel_sends_parameters_there_and_gradients_back_in_every_pass() -> None:
    link = Link("", 10e9, 0)
    once, twice = (Together(2, link).spent("dp", GPU_BOUND, work(), passes) for passes in (1, 2))
    assert once.exchanging == pytest.approx((10 * MB + MB + 10 * MB) / 10e9)
    assert twice.exchanging == pytest.approx(2 * once.exchanging)


def test_fsdp_hides_most_of_what_it_sends_and_steps_on_a_shard() -> None:
    spent = Together(4, LINK).spent("fsdp", GPU_BOUND, work(100 * MB))
    sent = 3 * (0.75 * 100 * MB / 10e9 + 4 * 3 * 5e-6)
    assert spent.exchanging == pytest.approx(0.2 * sent)  # or the first gathering and last scattering: 2 of 12
    assert spent.computing == pytest.approx(80e-3 + 20e-3 / 4)
