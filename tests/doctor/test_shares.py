import pytest

from brim.doctor.observation import Host, LineTime, Observation, Profile, Window
from brim.doctor.shares import shares

CPU = Host(cores=2, threads=2)
GPU = Host(cores=2, threads=2, device="cuda")


def test_there_are_none_without_timed_steps():
    assert shares(Observation("finished", 2, CPU)) is None


def test_on_a_cpu_launch_is_what_is_left():
    profile = Profile(steps=5, step=0.020, operators=10, compute=0.005, data=0.010)
    found = shares(Observation("measured", 100, CPU, timed=Window(100, 1.0, data=0.4), profile=profile))
    assert found.data == pytest.approx(0.4)
    assert found.compute == pytest.approx(0.6 * 0.5)  # half of what is not waiting, as under the profiler
    assert found.launch == pytest.approx(0.3) and found.copy == found.sync == 0


def test_batches_made_by_the_script_are_data_and_their_operators_are_not_compute():
    profile = Profile(steps=5, step=0.010, operators=10, compute=0.008, before_forward=0.003)
    lines = (LineTime("train.py:3", "x = make()", "data", 0.3), LineTime("train.py:5", "", "forward", 0.7))
    found = shares(Observation("measured", 100, CPU, timed=Window(100, 1.0), profile=profile, lines=lines))
    assert (found.data, found.compute, found.launch) == pytest.approx((0.3, 0.5, 0.2))


def test_without_a_profile_lines_tell_what_computes():
    lines = (LineTime("a.py:1", "", "backward", 0.5), LineTime("a.py:2", "", "python", 0.3))
    found = shares(Observation("finished", 9, CPU, timed=Window(9, 1.0, data=0.2), lines=lines))
    assert (found.data, found.compute, found.launch) == pytest.approx((0.2, 0.5, 0.3))


def test_on_a_gpu_the_profiler_slows_the_host_not_the_device():
    profile = Profile(
        steps=10, step=0.020, operators=9, compute=0.005, copy=0.001, data=0.001, sync=0.001, launch=0.012
    )
    found = shares(Observation("measured", 100, GPU, timed=Window(100, 1.0), profile=profile))
    assert (found.compute, found.copy, found.data, found.sync) == pytest.approx((0.5, 0.1, 0.1, 0.1))
    assert found.launch == pytest.approx(0.2)


def test_batches_made_by_the_script_are_what_an_idle_gpu_waits_for():
    profile = Profile(steps=10, step=0.010, operators=9, compute=0.004)
    lines = (LineTime("train.py:3", "x = make()", "data", 0.5),)
    found = shares(Observation("measured", 100, GPU, timed=Window(100, 1.0), profile=profile, lines=lines))
    assert (found.data, found.compute, found.launch) == pytest.approx((0.5, 0.4, 0.1))


@pytest.mark.parametrize("step", [0.001, 0.01, 0.1])
def test_they_add_up_to_one(step):
    profile = Profile(steps=10, step=0.03, operators=9, compute=0.01, copy=0.004, data=0.009, sync=0.002)
    for host in (CPU, GPU):
        found = shares(Observation("measured", 10, host, timed=Window(10, 10 * step, data=2 * step), profile=profile))
        assert sum(found.as_dict().values()) == pytest.approx(1)
        assert all(share >= 0 for share in found.as_dict().values())
