import io
import re
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
    bar.tell(50, 3, 0.1234, 1e-3, 1234.5)
    text = shown(console)
    for part in ("epoch 3", "50/200", "loss 0.1234", "lr 0.001", "1,234 samples/s", "0:00"):
        assert part in text
    clock[0] += 1
    bar.show(60, 3, loss=0.5)
    assert "60/200" in (text := shown(console)) and "loss 0.5000" in text
    bar.do("evaluating")
    assert "evaluating" in shown(console)


def test_in_a_narrow_terminal_the_step_and_the_loss_are_there(clock):
    console = Console(file=io.StringIO(), force_terminal=True, width=46)
    bar = ProgressBar(console, total=12345)
    shown(console)
    bar.tell(12000, 10, 0.1234, 1e-3, 23456.0)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown(console)).strip()
    assert text == "epoch 10 12,000/12,345 loss 0.1234  23,456/s" and len(text) <= 46


def test_at_80_columns_the_bar_gives_way_and_the_line_stays_one(clock):
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    bar = ProgressBar(console, total=3000)
    clock[0] += 60
    for step in range(2, 5):
        bar.tell(step * 500, 4, 0.4893, 6.96e-05, 1184.0)
        clock[0] += 60
    shown(console)
    bar.tell(2500, 4, 0.4893, 6.96e-05, 1184.0)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown(console)).strip()
    assert "\n" not in text and len(text) <= 80
    for part in ("epoch 4", "2,500/3,000", "lr 6.96e-05  1,184 samples/s", " left"):
        assert part in text


def test_without_a_finite_loss_it_says_so(clock):
    console = terminal()
    bar = ProgressBar(console, total=10)
    bar.tell(1, 1, None, 1e-3, 10.0)
    assert "no finite loss" in shown(console)


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
    bar.tell(2, 1, 0.5, 0.1, 10.0)
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
    bar.tell(5, 1, 0.5, 0.1, 10.0)
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


def test_in_a_notebook_the_cell_is_told_what_a_terminal_shows(clock):
    class Cell(list):
        def show(self, bar):
            self.append(bar)

    cell, console = Cell(), Console(file=io.StringIO(), width=40)
    bar = ProgressBar(console, total=200, cell=cell)
    bar.tell(50, 3, 0.1234, 1e-3, 1234.5)
    bar.do("evaluating")
    bar.close()
    first, second, last = cell
    assert (first.what, first.steps, first.share) == ("epoch 3", "50/200", 0.25)
    assert first.numbers == "loss 0.1234  lr 0.001  1,234 samples/s" and second.what == "evaluating" and last is None
    assert shown(console) == ""
