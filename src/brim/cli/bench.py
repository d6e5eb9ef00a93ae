"""``brim bench step``: how fast a training step is in each way to make it."""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from brim.cli.progress import telling

if TYPE_CHECKING:
    from brim.config.bench import StepBench

STOPPED = "stopped by Ctrl-C before everything was measured; nothing is kept"


def step(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG] [KEY=VALUE]...",
            help="A YAML file, then overrides such as model.name=bpr. Default: the recommender on built-in data.",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Seconds for timing each variant, over all rounds.")] = 3.0,
    precision: Annotated[
        list[str] | None,
        typer.Option(help="Measure in this precision instead of the configured one; may be repeated.", metavar="NAME"),
    ] = None,
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="Also measure with memory_format=channels_last, for convolutions.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rates as JSON.")] = False,
) -> None:
    """Time the training step eager, fused, compiled and captured, and keep nothing of these runs."""
    # Imported here, so that --help and --version do not wait for torch.
    from brim.cli.train import split_arguments
    from brim.config import load_config
    from brim.config.bench import READING, bench_step

    config = load_config(*split_arguments(arguments or []))
    with telling(STOPPED, unsaid=READING) as say:
        found = bench_step(config, seconds, say, precision or (), channels_last)
    if as_json:
        typer.echo(json.dumps(found.as_json()))
        return
    console = Console(highlight=False)
    console.print(rates_table(found))
    console.print(f"batch size {found.batch_size:,}; {found.device.sentence}", soft_wrap=True)


def rates_table(found: "StepBench") -> Table:
    """A row for each way, with its numbers or the reason why it has none."""
    from brim.sizes import show_bytes

    table = Table(
        Column("step", no_wrap=True), Column("samples/s", justify="right"), Column("to eager", justify="right"),
        Column("GPU busy", justify="right"),
    )  # fmt: skip
    has_memory = any(way.memory is not None for way in found.ways)
    if has_memory:
        table.add_column("memory", justify="right")
    has_reasons = any(way.reason for way in found.ways)
    if has_reasons:
        table.add_column("why not", overflow="fold")
    for way in found.ways:
        rate, ratio, busy = way.samples_per_second, found.ratio(way), way.gpu_busy
        cells = [
            "" if rate is None else f"{rate:,.0f}",
            "" if ratio is None else f"{ratio:.2f}x",
            "" if busy is None else f"{100 * busy:.0f} %",
            *(["" if way.memory is None else show_bytes(way.memory)] if has_memory else []),
        ]
        table.add_row(way.label, *cells, *([way.reason] if has_reasons else []))
    return table
