import sys
from types import ModuleType, SimpleNamespace

import pytest

from brim.record.notebook import BarState, CellView
from brim.record.notebook.cell_view import SHOWN_LINES

BAR = BarState("epoch 1", "5/20", 0.25, "loss 0.5", "0:01")


class Display:
    """What IPython would show: outputs, each with all that was drawn there."""

    def __init__(self):
        self.outputs, self.cell = [], 1

    def display(self, bundle, raw, display_id):
        drawn = [bundle]
        self.outputs.append(drawn)
        return SimpleNamespace(update=lambda bundle, raw: drawn.append(bundle))

    def text(self):
        return [drawn[-1]["text/plain"] for drawn in self.outputs]


@pytest.fixture
def shown(monkeypatch):
    shown, ipython, display = Display(), ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(execution_count=shown.cell)
    display.display = shown.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr("brim.record.notebook.cell_view.time", SimpleNamespace(monotonic=lambda: 100.0))
    return shown


def test_lines_and_the_bar_are_one_output(shown):
    view = CellView()
    view.say("begins")
    view.show(BAR)
    view.show(None)
    view.say("done")
    assert shown.text() == ["begins\ndone"] and len(shown.outputs[0]) == 4
    assert "epoch 1  5/20  loss 0.5  0:01" in shown.outputs[0][1]["text/plain"]


def test_while_steps_are_made_lines_wait_for_the_bar_to_be_drawn(shown):
    view = CellView()
    view.show(BAR)
    for epoch in range(100):
        view.say(f"epoch {epoch}")
    assert len(shown.outputs[0]) == 1
    view.show(None)
    assert len(shown.outputs[0]) == 2 and "epoch 99" in shown.text()[0]


def test_the_last_lines_and_all_warnings_are_kept(shown):
    view = CellView()
    view.say("out of memory", is_warning=True)
    for epoch in range(100):
        view.say(f"epoch {epoch}")
    lines = shown.text()[0].splitlines()
    assert len(lines) == SHOWN_LINES + 1
    assert lines[:2] == ["(86 earlier lines are in log.txt of the run folder)", "warning: out of memory"]
    assert lines[-1] == "epoch 99"


def test_another_cell_has_an_output_of_its_own(shown):
    view = CellView()
    view.say("made")
    shown.cell = 2
    view.say("begins")
    assert shown.text() == ["made", "begins"]


def test_what_is_said_shows_only_itself(shown):
    view = CellView()
    view.say("<img src=x onerror=alert(1)>\x1b[2J", is_warning=True)
    view.show(BarState("<b>", "</div>", None, "<i>", "0:00"))
    html = shown.outputs[0][-1]["text/html"]
    assert "<img" not in html and "\x1b" not in html and "<b>" not in html and "<i>" not in html


def test_a_front_end_that_fails_ends_nothing(shown, monkeypatch):
    def fail(*arguments, **named):
        raise RuntimeError("gone")

    monkeypatch.setattr(sys.modules["IPython.display"], "display", fail)
    view = CellView()
    view.say("begins")
    view.show(BAR)


def test_a_quiet_or_plain_journal_has_no_cell():
    from brim.record import Journal

    assert Journal().cell is None and Journal(quiet=True).cell is None
    Journal().hint("for a notebook alone")
