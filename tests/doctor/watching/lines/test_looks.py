import pytest

from brim.doctor.watching.lines.looks import by_time_spent
from brim.doctor.watching.lines.thread_state import Spent


def shares(found):
    return {what: seconds / sum(found.values()) for what, seconds in found.items()}


def test_looks_that_come_whenever_the_thread_waits_do_not_make_it_wait_longer():
    """Looks at a step of 8 ms of sleep and 2.3 ms of computing, on two cores with twelve processes; by its own clock
    it slept 83 % of the time."""
    looks, waiting = {"sleep": 3.27, "model": 0.084, "metrics": 0.093}, {"sleep": 2.745}
    found = shares(by_time_spent(looks, waiting, Spent(running=0.523, in_line=0.256, waiting=2.671), "model"))
    assert found["sleep"] == pytest.approx(0.83, abs=0.005)
    assert found["metrics"] / found["model"] == pytest.approx(0.093 / 0.084)


def test_a_thread_that_waits_often_is_often_in_line_thereafter():
    """The same with 3 ms of sleep; it slept 74 % of the time, with its being in line after that."""
    looks, waiting = {"sleep": 3.8, "model": 0.183, "metrics": 0.118}, {"sleep": 1.602}
    found = shares(by_time_spent(looks, waiting, Spent(running=0.87, in_line=1.505, waiting=1.726), "model"))
    assert found["sleep"] == pytest.approx(0.74, abs=0.01)


def test_where_cores_are_free_looks_are_as_they_were():
    looks, waiting = {"read": 1.0, "model": 3.0}, {"read": 0.6}
    found = by_time_spent(looks, waiting, Spent(running=3.4, in_line=0.0, waiting=0.6), "model")
    assert found == pytest.approx(looks)


def test_running_that_nobody_saw_is_what_was_said_to_be_unseen():
    found = by_time_spent({"sleep": 1.0}, {"sleep": 1.0}, Spent(running=0.2, in_line=0.0, waiting=0.8), "model")
    assert found == pytest.approx({"sleep": 0.8, "model": 0.2})


def test_without_a_look_at_waiting_all_is_running():
    found = by_time_spent({"model": 1.0}, {}, Spent(running=0.7, in_line=0.1, waiting=0.2), "model")
    assert shares(found) == {"model": 1.0}


def test_looking_takes_time_which_is_no_part_of_the_usual_step():
    looks, waiting = {"sleep": 0.5, "model": 0.5}, {"sleep": 0.5}
    usual = Spent(running=1.0, in_line=0.0, waiting=3.0)
    found = by_time_spent(looks, waiting, Spent(running=0.5, in_line=0.0, waiting=0.5), "model", usual)
    assert found == pytest.approx({"sleep": 3.0, "model": 1.0})
