"""What came of a run, as a notebook shows it: a table of its numbers, and its loss over the steps."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from brim.errors import printable
from brim.record.curves.curve import Curve
from brim.record.notebook.line_chart import BLUE, ORANGE, Drawn, line_chart
from brim.record.run_folder import RunFolder
from brim.record.run_record import RunRecord, read_run
from brim.record.words import show_seconds

STRETCHES = 120
MOST_METRICS = 12
CELL = "padding:2px 14px 2px 0;text-align:left"
NUMBER = f"{CELL};font-variant-numeric:tabular-nums"


def result_card(run: Path, steps: int, epochs: int, seconds: float, ended: str, metrics: Mapping[str, float]) -> str:
    """HTML with the table, and the chart where the run folder still has the numbers."""
    record = read_run(RunFolder(run))
    rows = [("ended", ended), ("steps", f"{steps:,}"), ("epochs", f"{epochs:,}"), ("time", show_seconds(seconds))]
    rows += [(name, f"{value:.4g}") for name, value in list(metrics.items())[:MOST_METRICS]]
    if len(metrics) > MOST_METRICS:
        rows.append(("more metrics", f"{len(metrics) - MOST_METRICS} in result.metrics"))
    rows.append(("run", str(run)))
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:8px 32px;align-items:flex-start">'
        f"{_table(rows)}{_chart(record)}</div>"
    )


def _table(rows: Sequence[tuple[str, str]]) -> str:
    lines = "".join(
        f'<tr><th style="{CELL};font-weight:600">{escape(printable(name))}</th>'
        f'<td style="{NUMBER};overflow-wrap:anywhere">{escape(printable(value))}</td></tr>'
        for name, value in rows
    )
    return f'<table style="border-collapse:collapse;max-width:420px;font-size:13px">{lines}</table>'


def _chart(record: RunRecord) -> str:
    monitor = str(record.result.get("monitor") or "loss")
    loss, judged = record.series.get("loss"), record.series.get(f"eval/{monitor}")
    if monitor == "loss":
        return line_chart([*_drawn("training loss", loss, BLUE), *_drawn("evaluation loss", judged, ORANGE)])
    charts = _drawn("training loss", loss, BLUE), _drawn(f"evaluation {monitor}", judged, ORANGE)
    return "".join(map(line_chart, charts))


def _drawn(name: str, curve: Curve | None, colour: str) -> list[Drawn]:
    if curve is None:
        return []
    points = curve.trend(STRETCHES) or [(point.step, point.value) for point in curve.points if point.value is not None]
    pairs = tuple((float(step), value) for step, value in points)
    return [Drawn(printable(name), pairs, colour)] if pairs else []
