"""How the frontier looks in a terminal: each way to make a batch fit, with its memory and its time."""

from dataclasses import replace
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from brim.frontier import Costed, Frontier
from brim.frontier.leaner import Leaner, leaner
from brim.memory.forecast import make_job, make_setting, precision_on
from brim.memory.planning.window import StepBatches
from brim.sizes import parse_memory, show_bytes

FASTEST = "<"


def frontier_of(job: dict[str, Any], memory: str | None, card: str | None) -> tuple[Frontier, int]:
    """The frontier of the arguments of a plan, and the limit that it is about."""
    setting = make_setting(card, None, None)
    known = ("loss", "optimizer", "clip_norm", "ema", "logits", "checkpointing")
    details = {name: job[name] for name in known if name in job}
    precision = precision_on(setting.card, job.get("precision", "32"))
    described = make_job(job["model"], job["batch"], precision=precision, **details)
    made = Frontier(described, setting, job["batch_size"], StepBatches.of_job(job))
    return made, made.card_limit if memory is None else parse_memory(memory)


def frontier_as_json(made: Frontier, limit: int) -> dict[str, Any]:
    """Rows, the fastest that fits, and what is left to the user."""
    fastest = made.verified(limit)
    return {
        "limit": limit,
        "rows": [row.as_json() for row in shown_rows(made.rows(limit), fastest and fastest[0])],
        "fastest": None if fastest is None else fastest[0].as_json(),
        "by_name": [change.as_json() for change in _left_to_the_user(made)],
    }


def show_frontier(made: Frontier, limit: int) -> None:
    """A table of rungs by their time, and below it what is another training."""
    console = Console(highlight=False)
    found = made.verified(limit)
    fastest = None if found is None else found[0]
    table = table_of(shown_rows(made.rows(limit), fastest), fastest)
    console.print(f"\nto fit into {show_bytes(limit)}, by the time of a step (forecast):")
    console.print(table)
    if fastest is None:
        console.print("none of these fits, by a trace of its own")
    else:
        console.print(f"the fastest that fits: {fastest.sentence}; Trainer(fit='auto') takes it")
    if fastest is not None and (wider := _wider(made, limit, fastest)):
        console.print(wider)
    changes = _left_to_the_user(made)
    if changes:
        console.print("another training, so by name only; each would save about:")
    for change in changes:
        console.print(f"  {show_bytes(change.saves):>10}  {change.name}")


def shown_rows(rows: list[Costed], fastest: Costed | None) -> list[Costed]:
    """With the one that is taken; what seemed to be faster was found not to fit, by a trace of its own."""
    if fastest is None:
        return [row if row.rung.expandable else replace(row, fits=False) for row in rows]
    others = [
        replace(row, fits=False) if row.seconds < fastest.seconds and not row.rung.expandable else row
        for row in rows
        if row.rung != fastest.rung
    ]
    return sorted([*others, fastest], key=lambda row: (row.seconds, row.reserved))


def table_of(rows: list[Costed], fastest: Costed | None) -> Table:
    """In 80 columns: words may break, numbers may not."""
    names = ("micro-\nbatch", "blocks", "reserved", "step", "more", "")
    columns = [Column(name, no_wrap=True, justify="right") for name in names]
    table = Table("besides", *columns, box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for row in rows:
        rung = row.rung
        besides = ", ".join(part for part in rung.sentence.split(", ")[1:] if "recomputed" not in part)
        blocks = f"{len(rung.recomputed)}/{rung.blocks}" if rung.blocks else ""
        mark = FASTEST if fastest is not None and rung == fastest.rung else "" if row.fits else "no fit"
        more = row.cost.removesuffix(" step time")
        table.add_row(
            besides, f"{rung.micro_batch:,}", blocks, show_bytes(row.reserved), show_ms(row.seconds), more, mark
        )  # fmt: skip
    return table


def show_ms(seconds: float) -> str:
    """Milliseconds of a step.

    >>> show_ms(1.234), show_ms(0.0012)
    ('1,234 ms', '1.2 ms')
    """
    return f"{1e3 * seconds:,.0f} ms" if seconds >= 0.01 else f"{1e3 * seconds:.1f} ms"


def _wider(made: Frontier, limit: int, fastest: Costed) -> str:
    """What expandable segments would bring, where pieces between blocks are what does not fit."""
    wide = [row for row in made.rows(limit) if row.rung.expandable and row.fits]
    best = min(wide, key=lambda row: row.seconds, default=None)
    if best is None or best.seconds >= fastest.seconds:
        return ""
    return (
        f"pieces between blocks are in the way: with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, set before the "
        f"program starts, {best.sentence}"
    )


def _left_to_the_user(made: Frontier) -> list[Leaner]:
    return leaner(made.job, made.setting, made.plain.rung.micro_batch)
