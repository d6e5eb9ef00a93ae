"""How a plan looks in a terminal."""

import json
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from brim.cli.planning.frontier_view import show_ms
from brim.frontier.card_times import CardTimes
from brim.hardware.cards import CARDS, Card
from brim.memory import Plan
from brim.memory.forecast import make_job, precision_on
from brim.memory.planning.every_card import CardOutcome, EveryCard
from brim.memory.planning.window import StepBatches
from brim.memory.trace.steps import Job
from brim.sizes import parse_memory, show_bytes

OnCard = tuple[Card, CardOutcome, float | None]  # with the seconds of a step, where they are known
BAR = 32  # characters of the longest bar


def show_plan(made: Plan, explain: bool) -> None:
    """The parts as bars, then the choices with their reasons."""
    console = Console(highlight=False, soft_wrap=True)
    forecast = made.forecast
    title = f"{forecast.card.name}, micro-batch {made.micro_batch:,}, precision {forecast.precision}"
    table = Table("part", "", "", title=title)
    largest = max(forecast.parts.values())
    for name, size in forecast.parts.items():
        table.add_row(name, show_bytes(size), "█" * round(BAR * size / largest))
    console.print(table)
    low, high = forecast.device_band
    band = "" if low == high else f" (between {show_bytes(low)} and {show_bytes(high)}: this card was not measured)"
    console.print(f"allocated {show_bytes(forecast.allocated)}, reserved {show_bytes(forecast.reserved)}")
    console.print(f"on the card {show_bytes(forecast.device)}{band}")
    console.print(f"captured as a CUDA graph, a step keeps up to {show_bytes(forecast.captured)} for itself besides")
    console.print(f"torch may reserve {show_bytes(made.limit)}: {100 * forecast.reserved / made.limit:.0f} % are used")
    console.print(f"\nlargest micro-batch that fits: {made.largest:,}{' or more' if made.larger_may_fit else ''}")
    for reason in made.reasons:
        console.print(f"  {reason}")
    for advice in made.advice:
        console.print(f"  advice: {advice}")
    for note in forecast.notes:
        console.print(f"  note: {note}")
    if explain:
        console.print("\n" + forecast.explain())


def show_cards(job: dict[str, Any], memory: str | None, as_json: bool, console: Console) -> None:
    """One line for each known card, so that one can see which to rent."""
    cards = every_card(job, None if memory is None else parse_memory(memory))
    times = CardTimes(cards.job_on, cards.batch_size, cards.batches.accumulation)
    found: list[OnCard] = []
    with console.status("forecasting memory") as status:
        for card in CARDS:
            status.update(f"forecasting memory on {card.name}")
            outcome = cards.outcome(card)
            seconds = times.seconds(card, outcome.micro_batch, outcome.slices) if outcome.fits else None
            found.append((card, outcome, seconds))
    if as_json:
        rows = [
            {"card": c.name, "memory": c.memory, "clouds": c.clouds, **o.as_json(), "step_ms": s and 1e3 * s}
            for c, o, s in found
        ]
        typer.echo(json.dumps(rows))
        return
    shown = Console(highlight=False)
    shown.print(_table_of_cards(found))
    if sentence := _smallest(found, cards.batch_size * cards.batches.accumulation):
        shown.print(sentence)
    for note in dict.fromkeys(note for _, outcome, _ in found for note in outcome.notes):
        shown.print(f"note: {note}")


def _smallest(found: list[OnCard], samples: int) -> str:
    """Prices are not known here; what has less memory, and of those what computes less, is mostly cheaper."""
    fitting = [(card, seconds) for card, outcome, seconds in found if outcome.fits]
    timed = [(card, seconds) for card, seconds in fitting if seconds is not None]
    if not fitting:
        return ""
    card, seconds = min(fitting, key=lambda pair: (pair[0].memory, -(pair[1] or 0.0)))
    pace = "how fast is not known" if seconds is None else f"about {samples / seconds:,.0f} samples/s"
    smallest = f"the smallest card that trains this: {card.name}, {pace}"
    if not timed:
        return smallest
    fastest, least = min(timed, key=lambda pair: pair[1])
    return f"{smallest}; the fastest: {fastest.name}, {samples / least:,.0f} (forecast from data sheets)"


def _table_of_cards(found: list[OnCard]) -> Table:
    """In 80 columns: names of cards may break, numbers may not."""
    numbers = ("memory", "micro-\nbatch", "how\nmany", "reserved", "step", "full")
    columns = [Column(name, no_wrap=True, justify="right") for name in numbers]
    table = Table("card", *columns, box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for card, outcome, seconds in sorted(found, key=lambda row: row[0].memory):
        full = f"{100 * outcome.reserved / outcome.limit:.0f} %" if outcome.fits else "no fit"
        table.add_row(
            card.name, show_bytes(card.memory), f"{outcome.micro_batch:,}", str(outcome.slices),
            show_bytes(outcome.reserved), "" if seconds is None else show_ms(seconds), full,
        )  # fmt: skip
    return table


def every_card(job: dict[str, Any], limit: int | None) -> EveryCard:
    """The arguments of a plan, for many cards."""
    details = {
        name: job[name] for name in ("loss", "optimizer", "clip_norm", "ema", "logits", "checkpointing") if name in job
    }

    def job_on(card: Card) -> Job:
        precision = precision_on(card, job.get("precision", "32"))
        return make_job(job["model"], job["batch"], precision=precision, **details)

    return EveryCard(job_on, job["batch_size"], limit, StepBatches.of_job(job))
