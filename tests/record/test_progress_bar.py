import io
import threading
from types import SimpleNamespace

import pytest
from rich.console import Console

from brim.record import ProgressBar


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("brim.record.progress_bar.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def terminal(**more):
    return Console(file=io.StringIO(), force_terminal=True, width=100, **more)


def shown(console):
    """What was printed since the last look."""
    text = console.file.getvalue()
    console.file.seek(0)
    console.file.truncate()
    return text


def test_a_terminal_shows_epoch_step_total_and_numbers(clock):
    console = terminal()
    bar = ProgressBar(console, total=200)
    shown(console)
    bar.show(50, 3, "loss 0.1234")
    text = shown(console)
    assert "epoch 3" in text
    assert "50/200" in text
    assert "loss 0.1234" in text


def test_it_is_drawn_at_most_twice_a_second(clock):
    console = terminal()
    bar = ProgressBar(console, total=1000)
    shown(console)
    draws = 0
    for step in range(100):  # ten seconds
        clock[0] += 0.1
        bar.show(step, 1)
        draws += bool(shown(console))
    assert 15 <= draws <= 20


def test_new_numbers_are_drawn_at_once_and_stay(clock):
    console = terminal()
    bar = ProgressBar(console, total=100)
    bar.show(1, 1)
    shown(console)
    bar.show(2, 1, "loss 0.5")
    assert "loss 0.5" in shown(console)
    clock[0] += 1
    bar.show(3, 1)
    assert "loss 0.5" in shown(console)


def test_an_unknown_total_is_shown_as_unknown(clock):
    console = terminal()
    bar = ProgressBar(console, total=None)
    bar.show(7, 1)
    assert "7/?" in shown(console)


@pytest.mark.parametrize("console", [Console(file=io.StringIO()), terminal(quiet=True)], ids=["no terminal", "quiet"])
def test_elsewhere_it_is_silent(clock, console):
    bar = ProgressBar(console, total=10)
    bar.show(5, 1, "loss 0.5")
    bar.close()
    assert not bar.is_visible
    assert shown(console) == ""


def test_it_starts_no_thread():
    before = threading.active_count()
    bar = ProgressBar(terminal(), total=10)
    bar.show(1, 1)
    assert threading.active_count() == before
    bar.close()


def test_after_closing_the_console_is_free_for_another_bar():
    console = terminal()
    ProgressBar(console, total=10).close()
    bar = ProgressBar(console, total=10)
    bar.show(4, 1)
    assert "4/10" in shown(console)
