"""``brim doctor``: where the time of a training script goes, and what to do about it."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def doctor(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT.py", help="A Python file that trains with torch.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGUMENTS]...", help="The script's own, after --.")
    ] = None,
    patience: Annotated[
        float, typer.Option(help="Seconds without a step after which the script hangs.", metavar="SECONDS", min=1)
    ] = 120.0,
    profile: Annotated[
        Path | None, typer.Option(help="Keep a trace of ten steps, for Perfetto.", metavar="TRACE.json")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Try the cures that need no change of the script, and prove their gain.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything that was measured as JSON.")] = False,
) -> None:
    """Run a script for some steps, unchanged, and say what its time goes to, why, and what to do."""
    # Imported here, so that --help does not wait.
    from rich.console import Console

    from brim.cli.observe.doctor_view import show_diagnosis, show_treatments
    from brim.doctor.diagnosis import diagnose
    from brim.doctor.treatment import treat

    console = Console(file=sys.stderr)
    own = tuple(arguments or ())
    try:
        with console.status("starting the script") as status:

            def say(sentence: str) -> None:
                if console.is_terminal:
                    status.update(sentence)
                else:
                    console.print(sentence, highlight=False, soft_wrap=True)

            found = diagnose(script, own, patience, say, profile)
            treatments = treat(script, own, found, patience, say) if apply else []
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped by Ctrl-C; the script was ended, and its files are as they were") from None
    if as_json:
        typer.echo(json.dumps({**found.as_json(), "treatments": [treatment.as_json() for treatment in treatments]}))
        return
    show_diagnosis(found)
    if apply:
        show_treatments(treatments)
