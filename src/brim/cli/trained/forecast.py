"""``brim forecast``: what comes after the end of the series that a run was trained on, or of newer ones."""

import json
from pathlib import Path
from typing import Annotated

import typer


def forecast(
    run: Annotated[Path, typer.Argument(help="A run of the forecaster, or its name in runs.", metavar="RUN")],
    data: Annotated[
        Path | None, typer.Option(help="A CSV or Parquet file with newer values; default: the data of the run.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="Folder for forecast.csv and forecast.svg; default: the run folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the paths as JSON.")] = False,
) -> None:
    """Write a CSV file and a drawing with bands, and put the drawing on the page of the run."""
    # Imported here, so that --help does not wait for torch.
    from brim.observe.run_search import find_run
    from brim.record import RunFolder, write_report
    from brim.workloads.forecaster.run_forecast import FORECAST, PICTURE, forecast_run

    found = find_run(run)
    made, notes = forecast_run(found, data, to)
    write_report(RunFolder.open(found))
    place = found if to is None else to
    if as_json:
        files = {"csv": str(place / FORECAST), "picture": str(place / PICTURE)}
        typer.echo(json.dumps({**files, "series": len(made), "horizon": len(made[0].times), "notes": notes}))
        return
    for sentence in notes:
        typer.echo(f"brim: {sentence}", err=True)
    typer.echo(place / FORECAST)
    typer.echo(place / PICTURE)
