"""``brim init``: an example project to begin from."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from brim.errors import ConfigError

SUFFIX = ".template"
NEXT = ("brim train config.yaml", "brim train config.yaml params.hidden=64", "pytest")


def init(
    folder: Annotated[
        Path, typer.Argument(help="Folder for the project; default: the current one.", metavar="[FOLDER]")
    ] = Path(),
) -> None:
    """Write a small project that works: a model, data, a configuration and a test. Nothing is overwritten."""
    for name in write_project(folder):
        typer.echo(f"wrote {folder / name}")
    inside = "" if folder == Path() else f"cd {folder} && "
    typer.echo("Next:")
    for command in NEXT:
        typer.echo(f"  {inside}{command}")


def project_files() -> dict[str, str]:
    """The files of the example project, by name."""
    templates = sorted((files("brim.cli") / "project").iterdir(), key=lambda file: file.name)
    return {file.name.removesuffix(SUFFIX): file.read_text("utf-8") for file in templates if file.name.endswith(SUFFIX)}


def write_project(folder: Path) -> list[str]:
    """Write all files, or none where one of them exists; returns their names."""
    contents = project_files()
    try:
        there = [name for name in contents if (folder / name).exists() or (folder / name).is_symlink()]
        if there:
            raise ConfigError(
                f"{folder / there[0]} exists and is not overwritten; run it in an empty folder, or name a new one"
            )
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            with (folder / name).open("x", encoding="utf-8") as file:  # x: nothing that came meanwhile is lost
                file.write(text)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot write the example project to {folder}: {reason}") from error
    return list(contents)
