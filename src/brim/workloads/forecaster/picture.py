"""A drawing of forecasts with their bands: an SVG file, for the run folder and the report."""

from collections.abc import Sequence
from html import escape

import numpy as np

from brim.errors import printable
from brim.workloads.forecaster.data.dates import shown_time
from brim.workloads.forecaster.forecasts import SeriesForecast

MOST = 12  # charts
WIDTH, HEIGHT, COLUMNS = 460, 190, 2
LEFT, RIGHT, TOP, BOTTOM = 62, 10, 26, 22
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#656b71}.name{fill:#1f2428;font-weight:600}"
    ".frame{fill:none;stroke:#e5e2db}.past{stroke:#4b5157}.next{stroke:#1d6aa8;stroke-width:1.8}.line{fill:none;stroke-width:1.3}"
    ".band{fill:#1d6aa8;fill-opacity:.18;stroke:none}"
)


def forecast_picture(forecasts: Sequence[SeriesForecast]) -> str:
    """The last steps of each series and channel, and what is forecast; the first dozen of them."""
    charts = [(one, place) for one in forecasts for place in range(len(one.channels))]
    shown = charts[:MOST]
    rows = -(-len(shown) // COLUMNS)
    note = f"the first {MOST} of {len(charts)}" if len(charts) > MOST else ""
    height = rows * HEIGHT + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * COLUMNS} {height}" role="img" '
        f'aria-label="forecasts with bands"><style>{STYLE}</style>',
        f'<rect width="{WIDTH * COLUMNS}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="{height - 8}">{_legend(forecasts[0].quantiles)} {note}</text>',
    ]
    for at, (one, place) in enumerate(shown):
        parts.append(
            f'<g transform="translate({at % COLUMNS * WIDTH},{at // COLUMNS * HEIGHT})">{_chart(one, place)}</g>'
        )
    return "".join([*parts, "</svg>\n"])


def _legend(quantiles: Sequence[float]) -> str:
    if len(quantiles) < 2:
        return "grey: what was; blue: forecast."
    share = round(100 * (quantiles[-1] - quantiles[0]))
    return f"grey: what was; blue: forecast, with the band that {share} % of values should fall into."


def _chart(one: SeriesForecast, place: int) -> str:
    horizon = len(one.times)
    kept = min(len(one.series), max(2 * horizon, 24))
    past, point, bands = one.series.values[-kept:, place], one.point[:, place], one.bands[:, place]
    everything = np.concatenate([past, point, bands.ravel()])
    low, high = float(np.nanmin(everything)), float(np.nanmax(everything))
    room = (high - low) * 0.05 or max(1.0, abs(high) * 0.05)
    scale = _Scale(kept + horizon - 1, low - room, high + room)
    seen = np.flatnonzero(np.isfinite(past))
    joint = [(int(seen[-1]), float(past[seen[-1]]))] if len(seen) else []  # the forecast goes on from the last value
    ahead = [(kept + at, float(value)) for at, value in enumerate(point)]
    name = " · ".join(part for part in (one.series.name, one.channels[place]) if part)
    parts = [f'<text class="name" x="{LEFT}" y="17">{escape(printable(name[:60]))}</text>', scale.frame()]
    if bands.shape[1] > 1:
        lower = [(kept + at, float(value)) for at, value in enumerate(bands[:, 0])]
        upper = [(kept + at, float(value)) for at, value in enumerate(bands[:, -1])]
        parts.append(f'<polygon class="band" points="{scale.points([*joint, *upper, *reversed(lower)])}"/>')
    for run in np.split(seen, np.flatnonzero(np.diff(seen) > 1) + 1):  # a gap is a gap
        parts.append(
            f'<polyline class="line past" points="{scale.points([(int(at), float(past[at])) for at in run])}"/>'
        )
    parts.append(f'<polyline class="line next" points="{scale.points([*joint, *ahead])}"/>')
    times = [shown_time(time) for time in (one.series.times[-kept], one.times[0], one.times[-1])]
    ends = zip(times, (0, kept, kept + horizon - 1), ("start", "middle", "end"), strict=True)
    parts += [
        f'<text x="{scale.x(at):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{escape(text)}</text>'
        for text, at, anchor in ends
        if anchor != "middle" or 0.3 < kept / (kept + horizon) < 0.72
    ]
    return "".join(parts)


class _Scale:
    """From steps and values to places in a chart."""

    def __init__(self, last: int, low: float, high: float) -> None:
        self.last, self.low, self.high = max(1, last), low, high

    def x(self, step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / self.last

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - value) / (self.high - self.low)

    def points(self, pairs: Sequence[tuple[int, float]]) -> str:
        return " ".join(f"{self.x(step):.1f},{self.y(value):.1f}" for step, value in pairs)

    def frame(self) -> str:
        """Lines at the top, in the middle and at the bottom, with their values."""
        parts = []
        for share in (0.1, 0.5, 0.9):
            value = self.low + share * (self.high - self.low)
            y = self.y(value)
            parts.append(f'<path class="frame" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>')
        return "".join(parts)
