"""The command line: one small file per command, one place where errors become one sentence and an exit code."""

import sys
import traceback
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from brim import __version__
from brim.cli.train import train
from brim.errors import BrimError, Interrupted

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train PyTorch models on whatever hardware is there: fill the GPU to the brim, and never over it.",
)
app.command()(train)


@app.callback(invoke_without_command=True)
def brim(version: bool = typer.Option(False, "--version", help="Show the version and exit.", is_eager=True)) -> None:
    if version:
        typer.echo(f"brim {__version__}")
        raise typer.Exit


def main() -> None:
    """Run a command. Users never see a traceback: a bug's goes to a file that they can send."""
    try:
        app()
    except BrimError as error:
        _fail(str(error), error.exit_code)
    except Interrupted as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _fail("stopped by Ctrl-C before training began; nothing was written", Interrupted.exit_code)
    except Exception as error:
        report = Path("brim-error.txt").absolute()
        where = f"details are in {report}" if _write(report, traceback.format_exc()) else traceback.format_exc()
        _fail(f"this is a bug in brim ({type(error).__name__}: {error}); please report it, {where}", 1)


def _write(path: Path, text: str) -> bool:
    try:
        path.write_text(text)
    except OSError:
        return False
    return True


def _fail(sentence: str, exit_code: int) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(f"[red]brim:[/] {escape(sentence)}")
    sys.exit(exit_code)
