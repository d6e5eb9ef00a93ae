"""``brim plan``: will it fit, on which card, and with which settings."""

import json
from dataclasses import replace
from typing import Annotated, Any

import typer


def plan(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG | MODULE:FUNCTION] [KEY=VALUE]...",
            help="A YAML file, or a function that returns the arguments of brim.plan as a dictionary.",
        ),
    ] = None,
    card: Annotated[
        str | None, typer.Option(help="A known card, such as 'NVIDIA A10G'; all: one line for each.", metavar="NAME")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="What torch may reserve, such as 8GiB; else what the card has.")
    ] = None,
    gpus: Annotated[int, typer.Option(help="GPUs of that kind.", min=1)] = 1,
    batch_size: Annotated[int | None, typer.Option(help="Another optimisation batch.", min=1)] = None,
    tier: Annotated[str | None, typer.Option(help="Ready-made settings: large, medium or small.")] = None,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Measure a small step on the GPU present.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show what holds the most at the peak.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Forecast the memory of a training run, without a GPU, and choose the settings that fit."""
    from rich.console import Console

    from brim.cli.plan_view import show_cards, show_plan
    from brim.memory import plan as make_plan

    console = Console(stderr=True)
    if calibrate:
        _calibrate(as_json)
        return
    with console.status("reading the job"):
        job, cache, why = _job(arguments or [], tier)
    if batch_size is not None:
        job["batch_size"] = batch_size
    if card == "all":
        show_cards(job, memory, as_json, console)
        return
    with console.status("forecasting memory"):
        made = make_plan(**job, memory=memory, gpus=gpus, card=card)
    if why:
        made = replace(made, cache=cache, reasons=(*made.reasons, why))
    if as_json:
        typer.echo(json.dumps(made.as_json()))
        return
    show_plan(made, explain)


def _job(arguments: list[str], tier: str | None) -> tuple[dict[str, Any], bool | None, str]:
    """The job, whether it caches, and why."""
    from brim.cli.train import split_arguments
    from brim.config import load_config
    from brim.config.plan import cache_choice, job_of_config, job_of_function, tier_overrides
    from brim.errors import ConfigError

    functions = [a for a in arguments if ":" in a and "=" not in a and not a.endswith((".yaml", ".yml"))]
    if functions:
        if len(arguments) > 1 or tier is not None:
            raise ConfigError(f"{functions[0]} is a function: settings and tiers belong to configurations")
        return job_of_function(functions[0]), None, ""
    path, overrides = split_arguments(arguments)
    config = load_config(path, [*tier_overrides(tier), *overrides])
    return job_of_config(config), *cache_choice(config)


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
