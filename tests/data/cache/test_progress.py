import io

from helpers.clock import Clock
from rich.console import Console

from brim.data.cache import progress as room
from brim.data.cache.progress import DRAW_SECONDS, LINE_SECONDS, QUIET_SECONDS, BuildingProgress


def building(monkeypatch, samples=100):
    clock, told = Clock(), []
    monkeypatch.setattr(room, "time", clock)
    return BuildingProgress(samples, told.append), clock, told


def test_what_is_done_within_two_seconds_is_not_told(monkeypatch):
    progress, clock, told = building(monkeypatch)
    with progress:
        clock.sleep(QUIET_SECONDS * 0.9)
        progress.show(99)
    assert told == []


def test_a_line_now_and_then_says_how_much_is_left(monkeypatch):
    progress, clock, told = building(monkeypatch)
    with progress:
        clock.sleep(10)
        progress.show(20)
        progress.show(21)
        clock.sleep(LINE_SECONDS)
        progress.show(80)
    assert told == [
        "building the cache: 20 of 100 samples, about 40 s left",
        "building the cache: 80 of 100 samples, about 10 s left",
    ]


def test_on_a_terminal_it_is_a_bar_and_no_line(monkeypatch):
    progress, clock, told = building(monkeypatch)
    screen = io.StringIO()
    progress._console = Console(file=screen, force_terminal=True)
    with progress:
        clock.sleep(QUIET_SECONDS)
        progress.show(20)
        clock.sleep(DRAW_SECONDS)
        progress.show(40)
    assert "building the cache" in screen.getvalue() and "40/100" in screen.getvalue() and told == []
