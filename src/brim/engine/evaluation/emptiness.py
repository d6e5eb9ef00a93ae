"""Data to judge by that has nothing in it: found before training, not after it."""

from typing import Any

from brim.data import named_feed
from brim.engine.evaluation.evaluation_sets import named_sets


def refuse_empty(**data: Any) -> None:
    """Refuse each of ``data``, by its argument's name, that is known to hold no batch.

    >>> refuse_empty(test_data=None)
    """
    for name, one in data.items():
        if one is None or hasattr(one, "evaluate"):  # which is checked where it is asked
            continue
        if (sets := named_sets(one)) is not None:
            refuse_empty(**{f"{name}[{key!r}]": value for key, value in sets.items()})
        else:
            named_feed(one, name)
