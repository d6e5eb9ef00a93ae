"""One output of a notebook's cell: the last lines of a run, and its bar below them."""

import time
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import Any

from brim.errors import printable

SHOWN_LINES = 15  # more would fill the cell: log.txt of the run folder has all of them
DRAW_SECONDS = 0.25  # between lines while steps are made: an epoch may take a millisecond
FONT = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px;line-height:1.5"


@dataclass(frozen=True)
class BarState:
    """How far a run is. ``share`` is None where its length is not known."""

    what: str
    steps: str
    share: float | None
    numbers: str
    times: str

    def text(self) -> str:
        return "  ".join(filter(None, (self.what, self.steps, self.numbers, self.times)))


@dataclass(frozen=True)
class Line:
    text: str
    is_warning: bool = False

    def plain(self) -> str:
        return f"warning: {self.text}" if self.is_warning else self.text

    def html(self) -> str:
        mark = '<span style="color:#b26a00">warning:</span> ' if self.is_warning else ""
        return f'<div style="overflow-wrap:anywhere">{mark}{escape(printable(self.text))}</div>'


class CellView:
    """Draws the same output again and again. In another cell it begins anew, below that one."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._left_out = 0
        self._bar: BarState | None = None
        self._handle: Any = None
        self._cell: int | None = None
        self._drawn = 0.0

    def say(self, text: str, is_warning: bool = False) -> None:
        self._enter_cell()
        self._lines.append(Line(text, is_warning))
        if len(self._lines) > SHOWN_LINES:
            # What was warned about stays: the oldest of the other lines goes.
            oldest = next((at for at, line in enumerate(self._lines) if not line.is_warning), 0)
            del self._lines[oldest]
            self._left_out += 1
        if self._bar is None or time.monotonic() - self._drawn >= DRAW_SECONDS:  # else with the bar, in a moment
            self._draw()

    def show(self, bar: BarState | None) -> None:
        """Draw the bar as it stands now; None where the run is over."""
        self._enter_cell()
        self._bar = bar
        self._draw()

    def _enter_cell(self) -> None:
        from IPython import get_ipython

        shell = get_ipython()
        cell = None if shell is None else int(shell.execution_count)
        if cell != self._cell:
            self._cell, self._handle, self._bar = cell, None, None
            self._lines, self._left_out = [], 0

    def _draw(self) -> None:
        from IPython.display import display

        self._drawn = time.monotonic()
        bundle = {"text/plain": self._plain(), "text/html": self._html()}
        with suppress(Exception):  # a front end that is gone, or knows no such output: that ends no run
            if self._handle is None:
                self._handle = display(bundle, raw=True, display_id=True)
            else:
                self._handle.update(bundle, raw=True)

    def _plain(self) -> str:
        lines = [self._note(), *(printable(line.plain()) for line in self._lines)]
        return "\n".join(filter(None, [*lines, "" if self._bar is None else self._bar.text()]))

    def _html(self) -> str:
        note = f'<div style="opacity:.6">{self._note()}</div>' if self._left_out else ""
        bar = "" if self._bar is None else bar_html(self._bar)
        return f'<div style="{FONT}">{note}{"".join(line.html() for line in self._lines)}{bar}</div>'

    def _note(self) -> str:
        return f"({self._left_out:,} earlier lines are in log.txt of the run folder)" if self._left_out else ""


def bar_html(bar: BarState) -> str:
    """A bar in colours that are seen on light and on dark notebooks.

    >>> "width:25.0%" in bar_html(BarState("epoch 1", "1/4", 0.25, "loss 0.5", "0:01"))
    True
    """
    share = 0.0 if bar.share is None else min(1.0, max(0.0, bar.share))
    track = (
        '<div style="flex:1 1 80px;min-width:40px;height:6px;border-radius:3px;background:rgba(128,128,128,.25)">'
        f'<div style="width:{100 * share:.1f}%;height:6px;border-radius:3px;background:#3a7fc1"></div></div>'
    )
    texts = [f"<span>{escape(printable(part))}</span>" for part in (bar.steps, bar.numbers) if part]
    times = f'<span style="opacity:.6">{escape(bar.times)}</span>' if bar.times else ""
    what = f"<span>{escape(printable(bar.what))}</span>"
    return (
        '<div style="display:flex;flex-wrap:wrap;align-items:center;gap:4px 12px;max-width:900px">'
        f"{what}{track}{''.join(texts)}{times}</div>"
    )
