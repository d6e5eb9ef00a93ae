"""Data to judge by that has nothing in it: found before training, not after it."""

from collections.abc import Mapping
from typing import Any

from brim.data import as_feed, batches_per_epoch
from brim.data.columns.columns import columns_of
from brim.engine.evaluation.evaluation import Evaluator
from brim.errors import DataError


def refuse_empty(**data: Any) -> None:
    """Refuse each of ``data``, by its argument's name, that is known to hold no batch.

    >>> refuse_empty(test_data=None)
    """
    for name, one in data.items():
        if one is None or isinstance(one, Evaluator):
            continue
        if isinstance(one, Mapping) and one and not _has_columns(name, one):
            refuse_empty(**{f"{name}[{key!r}]": value for key, value in one.items()})
        elif batches_per_epoch(_feed(name, one)) == 0:
            raise DataError(f"{name} is empty; leave it out, or hand over data with at least one sample")


def _has_columns(name: str, data: Mapping[Any, Any]) -> bool:
    try:
        return columns_of(data) is not None
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def _feed(name: str, data: Any) -> Any:
    try:
        return as_feed(data)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
