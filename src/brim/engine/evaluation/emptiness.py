"""Data to judge by that has nothing in it: found before training, not after it."""

from collections.abc import Mapping
from typing import Any

from brim.data import named_feed
from brim.data.columns.columns import columns_of
from brim.data.columns.frames import plain_columns
from brim.errors import DataError


def refuse_empty(**data: Any) -> None:
    """Refuse each of ``data``, by its argument's name, that is known to hold no batch.

    >>> refuse_empty(test_data=None)
    """
    for name, one in data.items():
        if one is None or hasattr(one, "evaluate"):  # which is checked where it is asked
            continue
        if isinstance(one, Mapping) and one and not _has_columns(name, one):
            refuse_empty(**{f"{name}[{key!r}]": value for key, value in one.items()})
        else:
            named_feed(one, name)


def _has_columns(name: str, data: Mapping[Any, Any]) -> bool:
    try:
        return columns_of(plain_columns(data)) is not None
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
