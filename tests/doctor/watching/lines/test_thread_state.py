import sys
import threading
import time

import pytest

from brim.doctor.watching.lines import thread_state as module
from brim.doctor.watching.lines.thread_state import thread_state

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel, as Linux tells it")


def states_of(work):
    """What another thread sees of one that does some work until it has been seen in some state."""
    found, is_over = [], threading.Event()

    def worked():
        found.append(thread_state())
        work(is_over)

    thread = threading.Thread(target=worked)
    thread.start()
    while not found:
        time.sleep(0.001)
    return found[0], is_over, thread


def test_a_thread_that_waits_is_told_from_one_that_computes():
    def compute(is_over):
        while not is_over.is_set():
            sum(range(10_000))

    for work, waits in ((threading.Event.wait, True), (compute, False)):
        state, is_over, thread = states_of(work)
        while state.is_waiting() is not waits:
            time.sleep(0.001)
        is_over.set()
        thread.join()
        state.close()


def test_what_a_thread_has_done_adds_up_to_the_time():
    state = thread_state()
    time.sleep(0.02)
    spent = state.spent()
    state.close()
    assert spent.running + spent.in_line + spent.waiting >= 0.02


def test_of_a_thread_that_has_ended_nothing_is_told():
    state, is_over, thread = states_of(threading.Event.wait)
    is_over.set()
    thread.join()
    while state.spent() is not None:  # it ends a little later than Python knows it to be over
        time.sleep(0.001)
    assert not state.is_waiting()
    state.close()


def test_where_the_system_tells_nothing_there_is_no_state(monkeypatch):
    def missing(*_):
        raise FileNotFoundError

    monkeypatch.setattr(module, "_open", missing)
    assert thread_state() is None
