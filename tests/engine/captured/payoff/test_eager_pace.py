"""The pace of eager steps on a simulated GPU: who is the limit, found without waiting for the device."""

import pytest

from brim.engine.captured.payoff.decision import BUSY
from brim.engine.captured.payoff.eager_pace import MOST_MARKS, ONE_CLOCK_SECONDS, EagerPace
from tests.helpers.simulated_gpu import MOST_QUEUED, SimulatedGpu


def train(gpu, pace, steps, kernels, each, warm_up=0.5, reads=False, between=0.0):
    """Eager steps, of which the first takes the host longer: it loads kernels."""
    for number in range(steps):
        gpu.python(between)
        pace.begins_step()
        gpu.python(warm_up if number == 0 else 0.0)
        for _ in range(kernels):
            gpu.launch(each)
        pace.ends_step()
        if reads:
            gpu.read()


def paced(gpu=None, **training):
    gpu = gpu or SimulatedGpu()
    pace = EagerPace(gpu, gpu.clock)
    train(gpu, pace, **training)
    gpu.python(1.0)  # all events are past
    return pace.read()


def test_a_step_of_short_kernels_is_the_hosts():
    found = paced(steps=6, kernels=200, each=1e-6)
    assert found.busy < 0.1
    assert found.seconds == pytest.approx(200 * 5e-6, rel=0.05)


def test_a_step_of_long_kernels_is_the_devices():
    found = paced(steps=6, kernels=200, each=50e-6)
    assert found.busy == 1.0
    assert found.seconds == pytest.approx(200 * 50e-6, rel=0.05)


def test_a_step_of_more_kernels_than_a_queue_holds_is_the_devices_too():
    found = paced(steps=8, kernels=MOST_QUEUED * 5 // 4, each=50e-6)
    assert found.busy >= BUSY


def test_a_loop_that_reads_every_loss_shows_how_far_behind_the_device_is():
    """The host waits for each step, which is launched in a tenth of the time."""
    assert paced(steps=6, kernels=200, each=50e-6, reads=True).busy >= BUSY
    assert paced(steps=6, kernels=200, each=1e-6, reads=True).busy < 0.1


def test_a_slow_feed_is_not_taken_for_a_busy_device():
    assert paced(steps=6, kernels=200, each=20e-6, between=0.05).busy < 0.2


def test_where_the_device_was_never_waiting_its_share_is_underestimated_only():
    gpu = SimulatedGpu()
    for _ in range(900):
        gpu.launch(50e-6)
    assert paced(gpu, steps=6, kernels=200, each=50e-6, warm_up=0.0).busy <= 1.0


def test_nothing_is_known_before_the_device_has_come_to_three_marks():
    gpu = SimulatedGpu()
    pace = EagerPace(gpu, gpu.clock)
    assert pace.read() is None
    train(gpu, pace, steps=2, kernels=10, each=1e-6)
    gpu.python(1.0)
    assert pace.read() is None
    gpu = SimulatedGpu()
    pace = EagerPace(gpu, gpu.clock)
    train(gpu, pace, steps=4, kernels=100, each=0.1)
    assert pace.read() is None and gpu.synchronised == 0
    assert pace.read(wait=True).busy == 1.0 and gpu.synchronised == 1


def test_a_run_that_waits_long_for_its_decision_is_still_known_to_be_busy():
    found = paced(steps=5 * MOST_MARKS, kernels=100, each=100e-6)
    assert found.busy == 1.0


def test_clocks_that_may_have_drifted_apart_are_compared_anew():
    gpu = SimulatedGpu()
    pace = EagerPace(gpu, gpu.clock)
    train(gpu, pace, steps=3, kernels=10, each=1e-6)
    gpu.python(ONE_CLOCK_SECONDS + 1)
    train(gpu, pace, steps=1, kernels=10, each=1e-6)
    gpu.python(1.0)
    assert pace.read() is None  # one step is left
    assert gpu.given_back == 4


def test_no_more_events_are_held_than_needed():
    gpu = SimulatedGpu()
    pace = EagerPace(gpu, gpu.clock)
    train(gpu, pace, steps=50, kernels=3, each=1e-6)
    assert gpu.records - gpu.given_back == MOST_MARKS
    pace.forget()
    assert gpu.records == gpu.given_back
