"""How a plan looks in a terminal."""

import json
from typing import Any

import typer
from rich.console import Console
from rich.table import Column, Table

from brim.hardware.cards import CARDS, Card
from brim.memory import Plan
from brim.memory.family import TraceFamily
from brim.memory.forecast import make_job, make_setting, trace_on
from brim.memory.plan import NothingFits, Planner
from brim.memory.sizes import parse_bytes, show_bytes

BAR = 32  # characters of the longest bar


def show_plan(made: Plan, explain: bool) -> None:
    """The parts as bars, then the choices with their reasons."""
    console = Console(highlight=False, soft_wrap=True)
    forecast = made.forecast
    table = Table("part", "", "", title=f"{forecast.card.name}, micro-batch {made.micro_batch:,}, {forecast.precision}")
    largest = max(forecast.parts.values())
    for name, size in forecast.parts.items():
        table.add_row(name, show_bytes(size), "█" * round(BAR * size / largest))
    console.print(table)
    low, high = forecast.device_band
    band = "" if low == high else f" (between {show_bytes(low)} and {show_bytes(high)}: this card was not measured)"
    console.print(f"allocated {show_bytes(forecast.allocated)}, reserved {show_bytes(forecast.reserved)}")
    console.print(f"on the card {show_bytes(forecast.device)}{band}")
    console.print(f"torch may reserve {show_bytes(made.limit)}: {100 * forecast.reserved / made.limit:.0f} % are used")
    console.print(f"\nlargest micro-batch that fits: {made.largest:,}")
    for reason in made.reasons:
        console.print(f"  {reason}")
    for advice in (*made.advice, *forecast.notes):
        console.print(f"  advice: {advice}")
    if explain:
        console.print("\n" + forecast.explain())


def show_cards(job: dict[str, Any], options: dict[str, Any], as_json: bool, console: Console) -> None:
    """One line for each known card, so that one can see which to rent."""
    rows, families = [], dict[tuple[int, int], TraceFamily]()
    with console.status("forecasting memory") as status:
        for card in CARDS:
            status.update(f"forecasting memory on {card.name}")
            rows.append(_row(card, job, options, families))
    if as_json:
        typer.echo(json.dumps(rows))
        return
    table = Table(Column("card", no_wrap=True), "memory", "fits", "micro-batch", "slices", "reserved", "full")
    for row in sorted(rows, key=lambda row: row["memory"]):
        full = f"{100 * row['reserved'] / row['limit']:.0f} %" if row["fits"] else ""
        table.add_row(
            row["card"], show_bytes(row["memory"]), "yes" if row["fits"] else "no", f"{row['micro_batch']:,}",
            str(row["slices"]), show_bytes(row["reserved"]), full,
        )  # fmt: skip
    Console(highlight=False).print(table)


def _row(
    card: Card, job: dict[str, Any], options: dict[str, Any], families: dict[tuple[int, int], TraceFamily]
) -> dict[str, Any]:
    """Traces are shared by cards of one architecture: what differs among them is a matter of megabytes."""
    row: dict[str, Any] = {"card": card.name, "memory": card.memory, "clouds": card.clouds}
    details = {name: value for name, value in job.items() if name not in ("batch_size", "sliceable")}
    setting = make_setting(card, None, None)
    made_job = make_job(**details)
    family = families.setdefault(card.capability, TraceFamily(lambda n: trace_on(made_job, n, setting)))
    limit = None if options["memory"] is None else parse_bytes(options["memory"])
    planner = Planner(made_job, setting, limit, job.get("sliceable"), family, with_remedies=False)
    try:
        made = planner.plan(job["batch_size"], options["gpus"])
    except NothingFits as error:
        needed = error.forecast
        return {**row, "fits": False, "micro_batch": 0, "slices": 0, "reserved": needed.reserved, "limit": needed.limit}
    return {
        **row, "fits": True, "micro_batch": made.micro_batch, "slices": made.slices, "reserved": made.forecast.reserved,
        "limit": made.limit, "largest_micro_batch": made.largest,
    }  # fmt: skip
