"""What more GPUs would bring: the part of ``brim plan`` that answers ``--gpus 1,2,4,8``."""

import json
from typing import Any

import typer
from rich.console import Console
from rich.table import Column, Table

from brim.errors import ConfigError
from brim.hardware.links import Link
from brim.memory import SpeedUp, speed_up
from brim.speed_up.measured_link import join_process_group, measured_link
from brim.speed_up.scaled import Scaled

MEASURED = "measured"
NAMES = {"single": "alone", "dp": "DP", "ddp": "DDP", "fsdp": "FSDP2"}
WIDTH = 100


def parse_gpus(written: str) -> int | tuple[int, ...]:
    """One number, or several with commas between them."""
    parts = [part.strip() for part in written.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise ConfigError(f"--gpus {written!r} must be a whole number of at least 1, or several such as 1,2,4,8")
    counts = tuple(int(part) for part in parts)
    if len(set(counts)) < len(counts):
        raise ConfigError(f"--gpus {written!r} names a number twice; give each once, such as 1,2,4,8")
    return counts if len(counts) > 1 else counts[0]


def link_to_use(written: str | None) -> tuple[str | Link | None, bool]:
    """The link, and whether this process is the one that speaks: measuring one takes several."""
    if written is None or written.strip().casefold() != MEASURED:
        return written, True
    import torch.distributed as dist

    join_process_group()
    try:
        return measured_link(), dist.get_rank() == 0
    finally:
        dist.destroy_process_group()


def forecast_speed_up(job: dict[str, Any], options: dict[str, Any], as_json: bool, console: Console) -> None:
    """Forecast, and show it."""
    with console.status("forecasting the speed-up") as status:
        steps = {name: value for name, value in job.items() if name != "evaluation"}
        made = speed_up(**steps, **options, tell=lambda doing: status.update(f"forecasting the speed-up: {doing}"))
    if as_json:
        typer.echo(json.dumps(made.as_json()))
        return
    show_speed_up(made)


def show_speed_up(made: SpeedUp) -> None:
    """A table, and a line for each thing that was measured or assumed."""
    console = Console(highlight=False, width=WIDTH)
    several = f" x {made.accumulation}" if made.accumulation > 1 else ""
    numbers = [Column(name, justify="right") for name in ("share", "step", "samples/s", "speed-up", "efficiency")]
    who = "GPUs" if made.rows[0].fits is not None else "ranks"
    table = Table(
        Column(who, justify="right"), "how", *numbers, "expected", "fits",
        title=f"{made.device}, batch {made.batch_size:,}{several}, {made.precision}",
    )  # fmt: skip
    for place, row in enumerate(made.rows):
        last = place + 1 == len(made.rows) or made.rows[place + 1].gpus != row.gpus
        table.add_row(*_cells(row), end_section=last)
    console.print(table)
    for note in made.notes:
        console.print(f"  {note}", soft_wrap=True)


def _cells(row: Scaled) -> list[str]:
    expected = "" if row.expected is None else f"{row.expected[0]}-{row.expected[1]} x"
    return [
        str(row.gpus), NAMES[row.strategy], f"{row.share:,}", _milliseconds(row.seconds),
        f"{row.samples_per_second:,.0f}" if row.samples_per_second >= 10 else f"{row.samples_per_second:.2f}",
        f"{row.speed_up:.2f} x", f"{100 * row.efficiency:.0f} %", expected, _fits(row),
    ]  # fmt: skip


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f} ms" if seconds >= 1e-2 else f"{1e3 * seconds:.2f} ms"


def _fits(row: Scaled) -> str:
    if row.fits is None:
        return ""
    if not row.fits:
        return "no"
    return "yes" if row.slices == 1 else f"in {row.slices} micro-batches"
