"""A few curves over the steps of a run, as inline SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 190
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 24, 24
BLUE, ORANGE = "#3a7fc1", "#d9822b"  # seen on light and on dark ground
TEXT = 'style="font:11px system-ui,sans-serif" fill="currentColor" fill-opacity=".75"'
DOT = 2.5


@dataclass(frozen=True)
class Drawn:
    """A curve by its name: pairs of step and value."""

    name: str
    points: tuple[tuple[float, float], ...]
    colour: str = BLUE


def line_chart(curves: Sequence[Drawn]) -> str:
    """An SVG drawing; nothing where there is nothing to draw.

    >>> line_chart([])
    ''
    >>> line_chart([Drawn("loss", ((1.0, 0.5), (2.0, 0.25)))]).startswith("<svg")
    True
    """
    if not curves:
        return ""
    steps = [step for curve in curves for step, _ in curve.points]
    values = [value for curve in curves for _, value in curve.points]
    frame = _Frame(min(steps), max(steps), min(values), max(values))
    parts = [frame.axes()]
    for place, curve in enumerate(curves):
        dot = f'<tspan fill="{curve.colour}">&#9679;</tspan>'
        parts.append(f'<text x="{LEFT + place * 150}" y="14" {TEXT}>{dot} {escape(curve.name[:24])}</text>')
        parts.append(frame.curve(curve))
    names = escape(" and ".join(curve.name for curve in curves), quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{names} over the steps" style="max-width:100%;height:auto">{"".join(parts)}</svg>'
    )


class _Frame:
    """From steps and values to places in the drawing."""

    def __init__(self, first: float, last: float, low: float, high: float) -> None:
        room = (high - low) * 0.05 or max(abs(high) * 0.05, 1e-12)
        self.first, self.last, self.low, self.high = first, last, low - room, high + room

    def place(self, step: float, value: float) -> str:
        across = 0.5 if self.last == self.first else (step - self.first) / (self.last - self.first)
        x = LEFT + (WIDTH - LEFT - RIGHT) * across
        return f"{x:.1f},{self._y(value):.1f}"

    def curve(self, curve: Drawn) -> str:
        places = [self.place(step, value) for step, value in curve.points]
        if len(places) == 1:
            x, y = places[0].split(",")
            return f'<circle cx="{x}" cy="{y}" r="{DOT}" fill="{curve.colour}"/>'
        return f'<polyline fill="none" stroke="{curve.colour}" stroke-width="1.5" points="{" ".join(places)}"/>'

    def axes(self) -> str:
        parts = []
        for share in (0.1, 0.5, 0.9):
            value = self.low + share * (self.high - self.low)
            y = self._y(value)
            parts.append(
                f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="currentColor" stroke-opacity=".15"/>'
                f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" {TEXT}>{value:.3g}</text>'
            )
        ends = ((LEFT, "start", f"step {self.first:,.0f}"), (WIDTH - RIGHT, "end", f"{self.last:,.0f}"))
        parts += [f'<text x="{x}" y="{HEIGHT - 6}" text-anchor="{at}" {TEXT}>{text}</text>' for x, at, text in ends]
        return "".join(parts)

    def _y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - value) / (self.high - self.low)
