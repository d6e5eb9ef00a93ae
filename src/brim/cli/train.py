"""``brim train``: train what a configuration describes."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from brim.cli.launch import default_ranks, is_a_rank, launch_ranks, no_restart_on_permanent_error, was_restarted
from brim.errors import ConfigError

if TYPE_CHECKING:
    from brim.config.load import RunConfig
    from brim.workloads.outcome import Outcome


Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG] [KEY=VALUE]...",
        help="A YAML file, then overrides such as trainer.epochs=3. Default: the recommender on built-in data.",
    ),
]
ResumeOption = Annotated[
    Path | None,
    typer.Option(
        help="Continue the run in this folder; auto: continue the run at trainer.run_dir, or begin it.", metavar="RUN"
    ),
]
RanksOption = Annotated[
    int | None, typer.Option(help="Number of processes that train together; default: one per GPU.", min=1)
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="With --resume RUN: run the code that the config of the run folder names.")
]
ShowConfigOption = Annotated[bool, typer.Option("--show-config", help="Print every setting and exit.")]
AsJsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
SlurmOption = Annotated[bool, typer.Option("--slurm", help="Print a script for sbatch and exit.")]
NodesOption = Annotated[int | None, typer.Option(help="Number of machines of the Slurm job; default 1.", min=1)]
GpusPerNodeOption = Annotated[int | None, typer.Option(help="GPUs per machine; default: as many as here, or 8.", min=0)]
TimeOption = Annotated[
    str | None, typer.Option(help="Time limit, after which the job is requeued; default 24:00:00.", metavar="H:M:S")
]


@no_restart_on_permanent_error()
def train(
    arguments: Arguments = None,
    resume: ResumeOption = None,
    ranks: RanksOption = None,
    trust: TrustOption = False,
    show_config: ShowConfigOption = False,
    as_json: AsJsonOption = False,
    slurm: SlurmOption = False,
    nodes: NodesOption = None,
    gpus_per_node: GpusPerNodeOption = None,
    time: TimeOption = None,
) -> None:
    """Train, and end with a table of metrics."""
    # Imported here, so that --help and --version do not wait for torch.
    from brim.config import show_config as as_yaml
    from brim.config.workload import open_workload

    given = arguments or []
    config, path, overrides = _read_configuration(given, resume, refuses_code=not (trust or show_config))
    options = [*(["--json"] if as_json else []), *(["--trust"] if trust else [])]
    if show_config:
        typer.echo(as_yaml(config), nl=False)
    elif slurm:
        again = [*([] if path is None else [str(path)]), *overrides, *options]
        typer.echo(_slurm_script(config, path, resume, ranks, nodes, gpus_per_node, time, again), nl=False)
    elif nodes is not None or gpus_per_node is not None or time is not None:
        raise ConfigError("--nodes, --gpus-per-node and --time are about a Slurm job: add --slurm")
    elif (wanted := 1 if is_a_rank() else ranks or default_ranks(config.trainer)) > 1:
        has_folder = resume is not None or config.trainer.run_dir is not None  # type: ignore[attr-defined]
        again = [] if resume is None else ["--resume", str(resume)]
        launch_ranks(wanted, [*given, *again, *options], has_folder)
    else:
        is_first = os.environ.get("RANK", "0") == "0"
        if is_first and (assumed := assumed_workload(config)):
            Console(stderr=True).print(assumed, highlight=False, soft_wrap=True)
        outcome = open_workload(config).run("auto" if was_restarted() and resume is None else resume)
        if is_first:
            _show(outcome, as_json)


def assumed_workload(config: "RunConfig") -> str:
    """What is about to be trained, where nobody has named a workload; empty where somebody has."""
    from brim.config.recommender import RecommenderConfig

    if "workload" in config.model_fields_set or not isinstance(config, RecommenderConfig):
        return ""
    return (
        f"no workload is named: training the recommender (model {config.model.name}, data {config.data.name}); "
        "another is workload=forecaster, workload=classifier or workload=module:function"
    )


def _read_configuration(
    arguments: list[str], resume: Path | None, refuses_code: bool
) -> tuple["RunConfig", Path | None, list[str]]:
    """The configuration, the file it is from (of a run that is resumed, the folder's own) and what overrides it."""
    from brim.config import load_config
    from brim.record.run_folder import CONFIG, RunFolder

    path, overrides = split_arguments(arguments)
    is_named = path is not None or any(given.startswith("workload=") for given in overrides)
    if resume is not None and path is None and str(resume) != "auto":
        path = RunFolder.open(resume).path / CONFIG
    config = load_config(path, overrides)
    if resume is not None and path is not None and not is_named and "workload" not in config.model_fields_set:
        raise ConfigError(
            f"{path} names no workload, so this is no run of brim train: run its script again, with "
            f"trainer.fit(resume={str(resume)!r})"
        )
    if path is not None and refuses_code and not is_named:
        refuse_code(config, path)
    return config, path, overrides


def refuse_code(config: "RunConfig", path: Path) -> None:
    """Refuse a configuration that came with a run folder and names code: the user named the folder, not the code."""
    from brim.config.own_model import OwnModelConfig

    if isinstance(config, OwnModelConfig):
        raise ConfigError(
            f"{path} names code to run, workload={config.workload!r}; name a configuration of your own as well, or add "
            "--trust if you trust this run folder"
        )


def _slurm_script(
    config: "RunConfig",
    path: Path | None,
    resume: Path | None,
    ranks: int | None,
    nodes: int | None,
    gpus_per_node: int | None,
    time: str | None,
    given: list[str],
) -> str:
    from brim.cli.slurm import DAY, SlurmJob, job_name, processes_per_node, slurm_script

    run = config.trainer.run_dir if resume is None or str(resume) == "auto" else str(resume)  # type: ignore[attr-defined]
    gpus, processes = processes_per_node(config.trainer.device, ranks, gpus_per_node)  # type: ignore[attr-defined]
    return slurm_script(
        SlurmJob(job_name(path, run), nodes or 1, gpus, processes, time or DAY, Path.cwd(), run, tuple(given))
    )


def _show(outcome: "Outcome", as_json: bool) -> None:
    """The table of metrics, next to what the trainer has said of the run; or both as JSON."""
    result = outcome.result
    if as_json:
        summary = {"run": str(result.run), "steps": result.steps, "epochs": result.epochs,
                   "seconds": round(result.seconds, 3), "ended": result.ended,
                   outcome.judged_by: outcome.table}  # fmt: skip
        typer.echo(json.dumps(summary))
        return
    if outcome.table:
        Console().print(metrics_table(outcome.table, outcome.columns, outcome.judged_by))


def split_arguments(arguments: list[str]) -> tuple[Path | None, list[str]]:
    """The configuration file, if the first argument is one, and the overrides.

    >>> split_arguments(["a.yaml", "trainer.lr=1"])
    (PosixPath('a.yaml'), ['trainer.lr=1'])
    """
    paths = [argument for argument in arguments if "=" not in argument or Path(argument).is_file()]
    if len(paths) > 1:
        raise ConfigError(f"one configuration file at most, and {', '.join(paths)} were named; settings are KEY=VALUE")
    return (Path(paths[0]) if paths else None), [argument for argument in arguments if argument not in paths]


def metrics_table(rows: dict[str, dict[str, float]], columns: Sequence[str], title: str = "test") -> Table:
    """Metrics, a row for each model; a dash where one has no such metric."""
    table = Table(title, *columns)
    for name, values in rows.items():
        cells = (f"{values[column]:.4f}" if column in values else "-" for column in columns)
        table.add_row(name, *cells)
    return table
