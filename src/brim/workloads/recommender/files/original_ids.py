"""The ids that people and items have in files, beside the ids from 0 that models have."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from brim.errors import DataError
from brim.workloads.recommender.interactions import Interactions

Parts = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Users and items of each part of the data, pair by pair, by the ids of the files."""


@dataclass(frozen=True)
class NumberedParts:
    """The same with ids from 0, in the order of the ids of the files, which are there too."""

    pairs: dict[str, Interactions]
    user_ids: np.ndarray
    item_ids: np.ndarray


def number_parts(parts: Parts) -> NumberedParts:
    """Ids from 0 for whoever and whatever occurs in any part.

    >>> number_parts({"train": (np.array([7, 3]), np.array([5, 5]))}).pairs["train"].users
    tensor([1, 0])
    """
    user_ids, item_ids = (np.unique(np.concatenate(column)) for column in zip(*parts.values(), strict=True))
    pairs = {
        name: Interactions(
            torch.from_numpy(np.searchsorted(user_ids, users)),
            torch.from_numpy(np.searchsorted(item_ids, items)),
            len(user_ids),
            len(item_ids),
        )
        for name, (users, items) in parts.items()
    }
    return NumberedParts(pairs, user_ids, item_ids)


def check_described(ids: np.ndarray, described: Mapping[int, object], file: str, kind: str) -> None:
    """Raise DataError where ``file`` says nothing of one of ``ids``."""
    unknown = next((i for i in ids.tolist() if i not in described), None)
    if unknown is not None:
        raise DataError(f"{kind} {unknown} has ratings and no line in {file}; are the files of one data set?")
