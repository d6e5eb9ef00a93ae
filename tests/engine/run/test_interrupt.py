import os
import signal
import threading

import pytest

from brim.engine.run.interrupt import Interrupt


def test_the_first_ctrl_c_asks_and_the_second_stops_at_once():
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_handler_before_is_put_back():
    before = signal.getsignal(signal.SIGINT)
    with Interrupt():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_nothing_is_installed():
    found = []

    def enter():
        with Interrupt() as interrupt:
            found.append(interrupt.requested)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [False]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_the_signals_of_schedulers_ask_too_and_may_come_twice(name, capfd):
    with Interrupt() as interrupt:
        for _ in range(2):
            os.kill(os.getpid(), getattr(signal, name))
        assert interrupt.requested
        assert interrupt.by == name
    assert capfd.readouterr().err.count(f"{name}: stopping after this step, with a checkpoint") == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
