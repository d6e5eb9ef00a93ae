"""``brim plan``: will it fit, on which card, with which settings, and what would more GPUs bring."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from brim.hardware.cards import Card
    from brim.memory import Plan


Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG | MODULE:FUNCTION] [KEY=VALUE]...",
        help="A YAML file, or a function that returns the arguments of brim.plan as a dictionary.",
    ),
]
CardOption = Annotated[
    str | None, typer.Option(help="A known card, such as 'NVIDIA A10G'; all: one line per card.", metavar="NAME")
]
MemoryOption = Annotated[
    str | None, typer.Option(help="Memory that torch may reserve, such as 8GiB; default: that of the card.")
]
GpusOption = Annotated[str, typer.Option(help="Number of GPUs; 1,2,4,8 compares these numbers.", metavar="N[,N...]")]
LinkOption = Annotated[
    str | None,
    typer.Option(help="Link between the GPUs: nvlink, pcie4, ethernet-100, ..., 45GB/s, or measured (under torchrun)."),
]
StepMsOption = Annotated[
    float | None, typer.Option(help="Step time on one GPU, in ms; default: a forecast.", metavar="MS")
]
MeasureOption = Annotated[
    bool, typer.Option("--measure", help="Measure the step time with a few real steps on this device.")
]
BatchSizeOption = Annotated[int | None, typer.Option(help="Override the optimisation batch.", min=1)]
TierOption = Annotated[str | None, typer.Option(help="Presets: large, medium or small.")]
CalibrateOption = Annotated[bool, typer.Option("--calibrate", help="Measure a small step on the GPU of this machine.")]
ExplainOption = Annotated[bool, typer.Option("--explain", help="Show what holds the most memory at the peak.")]
FrontierOption = Annotated[
    bool | None,
    typer.Option(
        "--frontier/--no-frontier",
        help="Show every way to make the batch fit, with memory and time; default: only if it does not fit.",
    ),
]
AsJsonOption = Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")]


def plan(
    arguments: Arguments = None,
    card: CardOption = None,
    memory: MemoryOption = None,
    gpus: GpusOption = "1",
    link: LinkOption = None,
    step_ms: StepMsOption = None,
    measure: MeasureOption = False,
    batch_size: BatchSizeOption = None,
    tier: TierOption = None,
    calibrate: CalibrateOption = False,
    explain: ExplainOption = False,
    frontier: FrontierOption = None,
    as_json: AsJsonOption = False,
) -> None:
    """Forecast the memory of a training run, without a GPU, and choose the settings that fit."""
    from rich.console import Console

    from brim.cli.plan_view import show_cards
    from brim.cli.speed_up import forecast_speed_up, link_to_use, parse_gpus
    from brim.memory.forecast import assumed_card

    console = Console(stderr=True)
    if calibrate:
        _calibrate(as_json)
        return
    counts = parse_gpus(gpus)
    timing: dict[str, Any] = {"link": link, "step_ms": step_ms, "measure": measure}
    _check_together(counts, timing, card)
    timing["link"], speaks = link_to_use(link)
    if not speaks:
        return
    with console.status("reading the job"):
        job, cache, why = _job(arguments or [], tier)
    if batch_size is not None:
        job["batch_size"] = batch_size
    if card is None and not measure and (assumed := assumed_card()) is not None:
        console.print(_about_assumed(assumed), highlight=False, soft_wrap=True)
        card = assumed.name
    if card == "all":
        show_cards(job, memory, as_json, console)
    elif isinstance(counts, int):
        with console.status("forecasting memory"):
            made = _planned({**job, "memory": memory, "gpus": counts, "card": card}, cache, why, frontier is True)
        if frontier is None:
            frontier = made is not None and made.slices > 1 and counts == 1
        _show(made, (job, memory, card) if frontier else None, as_json, explain, console)
    else:
        forecast_speed_up(job, {"gpus": counts, "memory": memory, "card": card, **timing}, as_json, console)


def _about_assumed(card: "Card") -> str:
    """Which card the plan is about where nobody has named one, and how to name another."""
    from brim.sizes import show_bytes

    return (
        f"no GPU is here and no card is named, so this is about the {card.name} ({show_bytes(card.memory)}); "
        "--card 'RTX 4090' names another, --card all shows every known one"
    )


def _planned(job: dict[str, Any], cache: bool | None, why: str, may_fail: bool) -> "Plan | None":
    """The plan without any rung; None where it does not fit and the frontier is to show what does."""
    from brim.errors import CannotFit
    from brim.memory import plan as make_plan

    try:
        made = make_plan(**job)
    except CannotFit:
        if may_fail:
            return None
        raise
    return replace(made, cache=cache, reasons=(*made.reasons, why)) if why else made


def _show(
    made: "Plan | None", frontier: tuple[Any, ...] | None, as_json: bool, explain: bool, console: "Console"
) -> None:
    from brim.cli.plan_view import show_plan
    from brim.cli.planning.frontier_view import frontier_as_json, frontier_of, show_frontier

    if made is not None and not as_json:
        show_plan(made, explain)
    shown = {} if made is None else made.as_json()
    if frontier is not None:
        with console.status("forecasting every way to make it fit"):
            found, limit = frontier_of(*frontier)
            as_data = frontier_as_json(found, limit) if as_json else {}
        if as_json:
            shown["frontier"] = as_data
        else:
            show_frontier(found, limit)
    if as_json:
        typer.echo(json.dumps(shown))


def _check_together(counts: int | tuple[int, ...], timing: dict[str, Any], card: str | None) -> None:
    """Refuse what has no meaning together."""
    from brim.errors import ConfigError

    if isinstance(counts, int):
        named = next((name for name, value in timing.items() if value is not None and value is not False), None)
        if named is not None:
            option = f"--{named.replace('_', '-')}"
            raise ConfigError(f"{option} belongs to the speed-up of several numbers of GPUs: --gpus 1,2,4,8")
    elif card == "all":
        raise ConfigError("--card all lists the memory of cards; for --gpus with several numbers name one of them")


def _job(arguments: list[str], tier: str | None) -> tuple[dict[str, Any], bool | None, str]:
    """The job, whether it caches, and why."""
    from brim.cli.train import split_arguments
    from brim.config import load_config
    from brim.config.plan import job_of_function, tier_overrides
    from brim.config.recommender import RecommenderConfig
    from brim.config.workload import open_workload
    from brim.errors import ConfigError

    functions = [a for a in arguments if ":" in a and "=" not in a and not a.endswith((".yaml", ".yml"))]
    if functions:
        if len(arguments) > 1 or tier is not None:
            raise ConfigError(f"{functions[0]} is a function: settings and tiers belong to configurations")
        return job_of_function(functions[0]), None, ""
    path, overrides = split_arguments(arguments)
    has_cache = isinstance(load_config(path, overrides), RecommenderConfig)
    workload = open_workload(load_config(path, [*tier_overrides(tier, has_cache), *overrides]))
    return workload.plan_job(), *workload.cache_choice()


def _calibrate(as_json: bool) -> None:
    from brim.memory.calibration import calibrate

    found, file = calibrate()
    if as_json:
        typer.echo(json.dumps({"context": found.context, "extra_reserved": found.extra_reserved, "file": str(file)}))
        return
    context = 0 if found.context is None else found.context
    typer.echo(
        f"context: {context / 2**20:,.0f} MiB, workspaces beyond the rules: {found.extra_reserved / 2**20:,.0f} MiB"
    )
    typer.echo(f"kept for later forecasts in {file}")
