"""``brim data NAME``: bring public data to a folder. A word that is no other command of the group is such a name."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import DownloadColumn
from typer.core import TyperGroup

from brim.cli.progress import progress_bar

DOWNLOAD = "download"


class DataCommands(TyperGroup):
    """``brim data ml-1m`` means ``brim data download ml-1m``: people should not have to say what is clear."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:
            ctx.fail("Name the data (ml-1m), or a command (pack SOURCE OUT).")
        if args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DOWNLOAD, *args]
        return super().parse_args(ctx, args)


def data(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Data set: ml-1m (MovieLens-1M).")],
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the data set.", show_default="data/NAME")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Download public data, unless it is there, and say where it comes from, its licence and how to use it."""
    # Imported here, so that --help and --version do not wait for torch.
    from brim.engine.components.settings import check_choice
    from brim.errors import ConfigError
    from brim.workloads.recommender.download import SOURCES, how_to_use, obtain

    if name not in SOURCES:
        check_choice("NAME", name, ["pack", *SOURCES])  # pack is no data, but what may have been meant
        raise ConfigError("write brim data pack SOURCE OUT, with pack first and its options behind it")
    source, folder = SOURCES[name], to or Path("data", name)
    if not as_json:  # before the download, so that the licence is read before there is something to use
        typer.echo(f"{source.about}\nFrom {source.url} ({source.page}).\n{source.licence}")
    try:
        with progress_bar(name, DownloadColumn()) as on_bytes:
            state = obtain(source, folder, on_bytes)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped by Ctrl-C; nothing of {name} was kept") from None
    if as_json:
        summary = {"name": name, "folder": str(folder), "url": source.url, "licence": source.licence, "state": state}
        typer.echo(json.dumps(summary))
        return
    typer.echo(f"{'Already' if state == 'there' else 'Now'} in {folder}; train on it: {how_to_use(source, folder)}")
