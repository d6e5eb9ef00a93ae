"""The roofline of one step, by hand, and how a known length sets its pace."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from brim.hardware.peaks import Peak
from brim.speed_up.step_time import (
    COMPUTE_SHARE,
    LAUNCH,
    MEMORY_SHARE,
    SHORTEST_KERNEL,
    VIEW,
    StepTime,
    gpu_seconds,
    host_seconds,
    paces,
    step_time,
)
from brim.speed_up.work import FULL, HALF, TF32, Operator, Work

PEAK = Peak(10e12, 100e12, 200e12, 1e12)
SECONDS = st.floats(1e-6, 10)
TIMES = st.builds(StepTime, SECONDS, SECONDS, SECONDS, SECONDS, SECONDS)


@pytest.mark.parametrize(("computed_in", "rate"), [(FULL, 10e12), (TF32, 100e12), (HALF, 200e12)])
def test_a_large_product_takes_its_operations_at_the_rate_of_its_format(computed_in: str, rate: float) -> None:
    assert gpu_seconds([Operator(1e12, 1e3, 1, computed_in)], PEAK) == pytest.approx(1e12 / rate / COMPUTE_SHARE)


def test_a_large_copy_takes_its_bytes() -> None:
    assert gpu_seconds([Operator(0, 1e9, 1)], PEAK) == pytest.approx(1e-3 / MEMORY_SHARE)


def test_no_kernel_is_shorter_than_the_shortest_and_a_view_is_none() -> None:
    assert gpu_seconds([Operator(1, 1, 1), Operator(0, 0, 0)], PEAK) == SHORTEST_KERNEL


def test_the_host_takes_its_time_for_launches_and_less_for_views() -> None:
    assert host_seconds([Operator(1e15, 1e15, 1), Operator(0, 0, 0)]) == pytest.approx(LAUNCH + VIEW)
    assert host_seconds([Operator(0, 0, 10, recurrent=True)]) < host_seconds([Operator(0, 0, 10)])


def test_passes_of_an_accumulated_step_are_told_one_by_one() -> None:
    one = Operator(0, 1e9, 1)
    operators = {"forward": (one, one), "backward": (one, one), "optimizer": (one,)}
    time = step_time(Work(8, operators, 2, (4,), 4, 1, 1, 0), PEAK)
    assert time.gpu_passes == pytest.approx(2 * time.gpu_optimizer)
    assert time.times(2).gpu == pytest.approx(5e-3 / MEMORY_SHARE)


@given(TIMES)
def test_a_step_takes_as_long_as_the_slower_of_host_and_gpu(time: StepTime) -> None:
    assert time.seconds == max(time.host, time.gpu)
    assert time.times(1) == time.scaled(1, 1) == time
    assert time.times(2).seconds <= 2 * time.seconds


@given(TIMES, SECONDS)
def test_at_the_pace_of_a_known_step_it_takes_that_long(time: StepTime, seconds: float) -> None:
    assert time.scaled(*paces(time, seconds)).seconds == pytest.approx(seconds)


@given(TIMES, SECONDS)
def test_the_host_is_never_taken_to_be_slower_than_forecast(time: StepTime, seconds: float) -> None:
    host, gpu = paces(time, seconds)
    assert host <= 1
    assert host == 1 or gpu <= 1


@pytest.mark.parametrize(
    ("time", "decides"),
    [
        pytest.param(StepTime(0.4, 0.5, 0.1, 0.2, 0.05), True, id="a forecast: launching takes longer"),
        pytest.param(StepTime(0.4, 0.5, 0.1, 0.95, 0.1), True, id="measured: the GPU ends just after the last launch"),
        pytest.param(StepTime(0.4, 0.5, 0.1, 1.5, 0.1), False, id="the GPU has more to do"),
        pytest.param(StepTime(0.0, 0.0, 0.0, 1.0, 0.1), False, id="a CPU launches nothing"),
    ],
)
def test_the_host_decides_where_the_gpu_hardly_works_longer(time: StepTime, decides: bool) -> None:
    assert time.is_launch_bound is decides
