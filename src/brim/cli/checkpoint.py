"""``brim checkpoint export``: the weights of a run as one file, for whoever reads safetensors."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="A run folder, or one of its checkpoints.", metavar="RUN")],
    to: Annotated[
        Path | None, typer.Option(help="File to write; default: model.safetensors in the run folder.")
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="Export the newest weights instead of the best ones.")] = False,
) -> None:
    """Write the best weights of a run (its newest, where none were chosen) into one safetensors file."""
    from brim.engine.checkpoints.export import export_weights

    written, source = export_weights(run, to, last)
    typer.echo(f"{written} holds the weights of {source}")
