"""``brim doctor``: where the time of a training script goes, and what to do about it."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from brim.errors import ConfigError

if TYPE_CHECKING:
    from brim.doctor.diagnosis import Diagnosis
    from brim.doctor.treatment import Treatment


ScriptArgument = Annotated[
    Path, typer.Argument(metavar="SCRIPT.py|CONFIG.yaml", help="A Python file that trains, or a configuration.")
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- ARGUMENTS]...", help="Arguments of the script, after --; KEY=VALUE for a configuration."
    ),
]
IsModuleOption = Annotated[
    bool, typer.Option("-m", help="Run a module, as python -m does: brim doctor -m my_project.train.")
]
PatienceOption = Annotated[
    float,
    typer.Option(help="Seconds without a step after which the script counts as hanging.", metavar="SECONDS", min=1),
]
ProfileOption = Annotated[
    Path | None, typer.Option(help="Keep a trace of ten steps or more, for Perfetto.", metavar="TRACE.json")
]
ApplyOption = Annotated[
    bool, typer.Option("--apply", help="Try the fixes that need no change of the script, and measure their gain.")
]
AllowChangesOption = Annotated[
    bool,
    typer.Option(
        "--allow-changes", help="With --apply: also try TF32 and bf16, and report by how much they change the losses."
    ),
]
LimitOption = Annotated[
    float,
    typer.Option(
        help="With --apply: time limit in seconds; fixes that would not end in time are not tried.",
        metavar="SECONDS",
        min=1,
    ),
]
AsJsonOption = Annotated[bool, typer.Option("--json", help="Print everything that was measured as JSON.")]


def doctor(
    script: ScriptArgument,
    arguments: Arguments = None,
    is_module: IsModuleOption = False,
    patience: PatienceOption = 120.0,
    profile: ProfileOption = None,
    apply: ApplyOption = False,
    allow_changes: AllowChangesOption = False,
    limit: LimitOption = 170.0,
    as_json: AsJsonOption = False,
) -> None:
    """Run a script or a configuration for some steps and say what its time goes to, why, and what to do."""
    # Imported here, so that --help does not wait.
    from brim.cli.observe.configured_training import is_configuration, script_for, script_for_module
    from brim.cli.observe.doctor_view import show_diagnosis, show_treatments

    if allow_changes and not apply:
        raise ConfigError("--allow-changes is about the cures that are tried: add --apply")
    own = tuple(arguments or ())
    with ExitStack() as stack:
        if not is_module and is_configuration(str(script)):
            folder = stack.enter_context(TemporaryDirectory(prefix="brim-doctor-config-"))
            script, own = script_for(str(script), list(own), Path(folder)), ()
        elif is_module:
            folder = stack.enter_context(TemporaryDirectory(prefix="brim-doctor-module-"))
            script = script_for_module(str(script), Path(folder))
        found, treatments = _examined(script, own, patience, profile, apply, allow_changes, limit)
    if as_json:
        typer.echo(json.dumps({**found.as_json(), "treatments": [treatment.as_json() for treatment in treatments]}))
    else:
        show_diagnosis(found)
        if apply:
            show_treatments(treatments)
    if found.exit_code:  # the script failed, if only after it had been measured
        sys.exit(found.exit_code)


def _examined(
    script: Path,
    own: tuple[str, ...],
    patience: float,
    trace: Path | None,
    applies: bool,
    allow_changes: bool,
    seconds: float,
) -> tuple["Diagnosis", list["Treatment"]]:
    """What is wrong with a script, and what came of the cures; meanwhile what happens is told on stderr."""
    from rich.console import Console

    from brim.doctor.diagnosis import diagnose
    from brim.doctor.time_limit import TimeLimit
    from brim.doctor.treatment import treat

    limit = TimeLimit(seconds)
    console = Console(file=sys.stderr)
    try:
        with console.status("starting the script") as status:

            def say(sentence: str) -> None:
                if console.is_terminal:
                    status.update(sentence)
                else:
                    console.print(sentence, highlight=False, soft_wrap=True)

            found = diagnose(script, own, patience, say, trace)
            return found, treat(script, own, found, patience, say, allow_changes, limit) if applies else []
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped by Ctrl-C; the script was ended, and its files are as they were") from None
