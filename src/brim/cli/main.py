"""The command line: one small file per command, one place where errors become one sentence and an exit code."""

import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import NoReturn, ParamSpec

import typer
from rich.console import Console
from rich.text import Text

from brim import __version__
from brim.cli.bench import step
from brim.cli.bench_recommender import recommender
from brim.cli.checkpoint import export
from brim.cli.data import DOWNLOAD, DataCommands, data
from brim.cli.init import init
from brim.cli.observe.doctor import doctor
from brim.cli.observe.reader import until_the_reader_leaves
from brim.cli.observe.report import report
from brim.cli.observe.runs import LIST, RunsCommands, compare, list_runs
from brim.cli.observe.watch import watch
from brim.cli.pack import pack
from brim.cli.plan import plan
from brim.cli.recommend import recommend
from brim.cli.train import train
from brim.cli.trained.classify import classify
from brim.cli.trained.forecast import forecast
from brim.errors import INTERRUPTED, BrimError, printable

Parameters = ParamSpec("Parameters")

app = typer.Typer(
    pretty_exceptions_enable=False,
    help="Train PyTorch models on whatever hardware is there: fill the GPU to the brim, and never over it.",
)


def main() -> None:
    """Run a command. What cannot be understood of the command line is one sentence too."""
    try:
        sys.exit(app(prog_name="brim", standalone_mode=False) or 0)
    except Exception as error:
        # typer may carry its own copy of click, so its exceptions are known by what they can do.
        if not hasattr(error, "format_message"):
            raise
        said = " ".join(error.format_message().split())
        if not said:  # a group without a command, whose help has been shown
            sys.exit(2)
        is_option = "No such option: --" in said and "train" in sys.argv[1:2]
        settings = " (settings are written without dashes: trainer.epochs=3)" if is_option else ""
        told = f"{said}{settings}"
        command = getattr(getattr(error, "ctx", None), "command_path", "brim")
        _fail(f"{told}{'' if told[-1] in '.?' else '.'} Try {command} --help.", 2)


def in_one_sentence(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """The command, whose errors end in one sentence on stderr. A bug's traceback goes to a file that users can send."""

    @wraps(command)
    def guarded(*arguments: Parameters.args, **options: Parameters.kwargs) -> None:
        try:
            with ctrl_c_noted() as presses, until_the_reader_leaves():
                command(*arguments, **options)
        except BrimError as error:
            _fail(str(error), error.exit_code)
        except KeyboardInterrupt as error:
            _fail(str(error) or "stopped by Ctrl-C, without a checkpoint", INTERRUPTED)
        except Exception as error:
            if presses:
                _fail("stopped by Ctrl-C, without a checkpoint", INTERRUPTED)
            details = traceback.format_exc()
            report = Path("brim-error.txt").absolute()
            where = f"the details are in {report}" if _write(report, details) else f"the details:\n{details}"
            what = " ".join(f"{type(error).__name__}: {error}".split())
            if line := _users_line(error):
                _fail(f"your code failed at {line}: {what}; {where}", 2)
            _fail(f"brim did not expect this: {what}; please report it: {where}", 1)

    return guarded


@contextmanager
def ctrl_c_noted() -> Iterator[list[int]]:
    """Presses of Ctrl-C, each of which is a KeyboardInterrupt as ever: where one falls into an import, torch, numpy and
    transformers make any other error of it, whose causes do not tell.
    """
    presses: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        presses.append(number)
        signal.default_int_handler(number, frame)

    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not ignored
    if is_ours:
        signal.signal(signal.SIGINT, note)
    try:
        yield presses
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _users_line(error: Exception) -> str:
    from brim.user_line import line_at_fault  # torch comes with it, which --help does not need

    return line_at_fault(error.__traceback__)


def _write(path: Path, text: str) -> bool:
    try:
        path.write_text(text)
    except OSError:
        return False
    return True


def _fail(sentence: str, exit_code: int) -> NoReturn:
    shown = "\n".join(map(printable, sentence.split("\n")))  # names and texts in it may be from anywhere
    with suppress(OSError):  # stderr may be a file on a full disk: the exit code says it all the same
        Console(stderr=True, soft_wrap=True).print(Text.assemble(("brim:", "red"), " ", shown))
    sys.exit(exit_code)


@app.callback(invoke_without_command=True)
def brim(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show the version and exit.", is_eager=True),
) -> None:
    if version:
        typer.echo(f"brim {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command()(in_one_sentence(train))
app.command()(in_one_sentence(plan))
app.command()(in_one_sentence(classify))
app.command()(in_one_sentence(forecast))
app.command()(in_one_sentence(init))
app.command()(in_one_sentence(watch))
app.command()(in_one_sentence(doctor))
app.command()(in_one_sentence(report))
app.command()(in_one_sentence(recommend))

checkpoint_commands = typer.Typer(help="What a run has saved: brim checkpoint export RUN.", no_args_is_help=True)
checkpoint_commands.callback()(lambda: None)  # a group, though it has one command so far
checkpoint_commands.command()(in_one_sentence(export))
app.add_typer(checkpoint_commands, name="checkpoint")

data_commands = typer.Typer(
    cls=DataCommands,
    help="Public data by its NAME (brim data ml-1m [--to FOLDER]), and files packed into shards.",
    subcommand_metavar="NAME | COMMAND [ARGS]...",
)
data_commands.command(DOWNLOAD)(in_one_sentence(data))
data_commands.command()(in_one_sentence(pack))
app.add_typer(data_commands, name="data")

runs_commands = typer.Typer(
    cls=RunsCommands,
    help="Which runs there are and how they stand (brim runs [FOLDER]), and two of them side by side.",
    subcommand_metavar="[FOLDER] | COMMAND [ARGS]...",
)
runs_commands.command(LIST)(in_one_sentence(list_runs))
runs_commands.command()(in_one_sentence(compare))
app.add_typer(runs_commands, name="runs")

bench_commands = typer.Typer(help="How fast training is on this machine, and how well a recommender ranks.")


@bench_commands.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


bench_commands.command()(in_one_sentence(step))
bench_commands.command()(in_one_sentence(recommender))
app.add_typer(bench_commands, name="bench")
