"""A split that somebody else made: which pairs are for training, validation and test."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from brim.errors import DataError
from brim.workloads.recommender.files.original_ids import Parts
from brim.workloads.recommender.interactions import SPLITS
from brim.workloads.recommender.number_table import read_number_table

SplitFiles = str | Path | Mapping[str, str | Path]
Pairs = tuple[np.ndarray, np.ndarray]
TABLES = {"train": ("train.tsv",), "validation": ("validation.tsv", "valid.tsv"), "test": ("test.tsv",)}
LISTS = {"train": "train_data.json", "validation": "validation_data.json", "test": "test_data.json"}
ID_MAP = "idmap.json"


def read_split(given: SplitFiles, read_pairs: Callable[[Path], Pairs] | None = None) -> Parts:
    """The pairs of each split, by the data set's own ids.

    Args:
        given: a folder with train.tsv, validation.tsv (or valid.tsv) and test.tsv, or a mapping from split to file,
            each with a user's and an item's id a line; or a folder as BARS has it, with train_data.json,
            validation_data.json and test_data.json (for each user the list of their items, by place) and idmap.json,
            which says which ids these places are: ``{"users": [...], "items": [...]}``.
        read_pairs: reads a table, where ids need not be numbers.
    """
    if not isinstance(given, Mapping) and (Path(given) / LISTS["train"]).exists():
        return _read_lists(Path(given))
    read_pairs = read_pairs or _read_numbers
    return {split: read_pairs(file) for split, file in _tables(given).items()}


def _read_numbers(path: Path) -> Pairs:
    users, items = read_number_table(path, b"\t", ("user id", "movie id"), header=True)
    return users, items


def _tables(given: SplitFiles) -> dict[str, Path]:
    if isinstance(given, Mapping):
        missing = [split for split in SPLITS if split not in given]
        if missing:
            raise DataError(f"split_files names no file for {', '.join(missing)}; it needs {', '.join(SPLITS)}")
        return {split: Path(given[split]) for split in SPLITS}
    folder = Path(given)
    files = {}
    for split, names in TABLES.items():
        found = [folder / name for name in names if (folder / name).exists()]
        if not found:
            raise DataError(f"split_files={str(folder)!r} has no {' or '.join(names)}")
        files[split] = found[0]
    return files


def _read_lists(folder: Path) -> Parts:
    ids = _read_json(folder / ID_MAP, "it says which ids the places in the lists are")
    try:
        users, items = (np.array([_whole(one) for one in ids[name]], dtype=np.int64) for name in ("users", "items"))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f'{folder / ID_MAP} must be {{"users": [...], "items": [...]}} with numbers as ids') from error
    for name, known in (("user", users), ("item", items)):
        if len(np.unique(known)) < len(known):
            raise DataError(f"{folder / ID_MAP} has one {name} at two places; each {name} has one")
    return {split: _listed_pairs(folder / name, users, items) for split, name in LISTS.items()}


def _listed_pairs(path: Path, users: np.ndarray, items: np.ndarray) -> Pairs:
    found = _read_json(path, "a split has one for train, validation and test")
    try:
        rows = list(found.items()) if isinstance(found, dict) else list(enumerate(found))
        people = np.array([_whole(user) for user, listed in rows for _ in listed], dtype=np.int64)
        watched = np.array([_whole(item) for _, listed in rows for item in listed], dtype=np.int64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{path} must have a list of items for each user") from error
    for name, places, known in (("user", people, users), ("item", watched, items)):
        odd = places[(places < 0) | (places >= len(known))]
        if len(odd):
            raise DataError(f"{path} names {name} {odd[0]}, and {ID_MAP} has {len(known)} {name}s, from 0 on")
    return users[people], items[watched]


def _whole(number: Any) -> int:
    """What JSON has as a number, or as the text of one, where it is a whole one."""
    whole = int(number)
    if isinstance(number, float | bool):
        raise ValueError(f"{number} is no whole number")
    return whole


def _read_json(path: Path, why: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; {why}") from error
    except ValueError as error:
        raise DataError(f"{path} is no JSON: {error}") from error
