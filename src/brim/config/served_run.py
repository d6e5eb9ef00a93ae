"""A run of the recommender in use: its model, and the data set that it was trained on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from brim.config.load import load_config, parse_yaml
from brim.config.recommender import RecommenderConfig
from brim.config.recommender_workload import build_dataset
from brim.errors import DataError, RunFolderError
from brim.record import RunFolder
from brim.record.run_folder import CONFIG
from brim.workloads import load
from brim.workloads.recommender.serving.catalogue import Catalogue


@dataclass(frozen=True)
class ServedRun:
    """What recommends, and the names of what it recommends."""

    model: nn.Module
    catalogue: Catalogue


def open_served_run(run: str | Path, overrides: Sequence[str] = ()) -> ServedRun:
    """The model of a run with its data set, read from where the run had it.

    Args:
        run: a run folder of ``brim train`` with the recommender.
        overrides: of its configuration, where the data is elsewhere now: ``data.path=FOLDER``.
    """
    config = _config_of(RunFolder.open(run), overrides)
    model = load(run)
    dataset = build_dataset(config.data)
    arguments: Any = model.arguments
    expected, found = (arguments["n_users"], arguments["n_items"]), (dataset.get_user_num(), dataset.get_item_num())
    if expected != found:
        raise DataError(
            f"the data has {found[0]:,} users and {found[1]:,} items, and {run} was trained with {expected[0]:,} and "
            f"{expected[1]:,}; name the same data with data.path=FOLDER"
        )
    return ServedRun(model, Catalogue(dataset))


def _config_of(folder: RunFolder, overrides: Sequence[str]) -> RecommenderConfig:
    path = folder.path / CONFIG
    try:
        written = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeError) as error:
        raise RunFolderError(f"cannot read {path}, which says what data the run was trained on") from error
    config = load_config(path, overrides) if written.get("workload") == "recommender" else None
    if not isinstance(config, RecommenderConfig):
        raise RunFolderError(
            f"{folder.path} is not a run of workload: recommender, so its data is not known here; in Python it is "
            "brim.load(run).recommend(user, k)"
        )
    return config
