"""``brim report``: the page of a run, or of two side by side."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="A run folder, or the name of one in runs.", metavar="RUN")],
    other: Annotated[Path | None, typer.Argument(help="A second run, to compare with.", metavar="[RUN2]")] = None,
    to: Annotated[Path | None, typer.Option(help="File or folder for the page; default: the folder of RUN.")] = None,
) -> None:
    """Write the page of a run, or of two on the same axes, and print where it is."""
    from brim.observe.comparison import read_record
    from brim.observe.comparison_page import comparison_page
    from brim.observe.run_search import find_run
    from brim.record.report import REPORT
    from brim.record.report.page_data import page_data
    from brim.record.report.page_file import render
    from brim.record.run_folder import write_atomically

    found = find_run(run)
    if other is None:
        name, page = REPORT, render(page_data(read_record(found)))
    else:
        beside = find_run(other)
        name, page = f"report-with-{beside.resolve().name}.html", comparison_page(found, beside)
    place = found / name if to is None else to / name if to.is_dir() else to
    write_atomically(place, page, advice="name another place with --to")
    typer.echo(place)
