"""JSON of a run folder, which may come from anywhere: an object of ordinary depth, or nothing; and nesting undone."""

import json
from collections.abc import Mapping
from typing import Any

DEEPEST = 20  # what brim writes has three levels; much deeper ones cannot even be shown


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """The object that ``text``, or a line of a file, is, or None.

    >>> json_object('{"step": 1}'), json_object('{"step": 1'), json_object("[1]")
    ({'step': 1}, None, None)
    """
    try:
        value = json.loads(text if isinstance(text, str) else text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and _is_shallow(value, DEEPEST) else None


def flat(settings: Mapping[Any, Any], before: str = "") -> dict[str, Any]:
    """Settings within settings as one level, by dotted names.

    >>> flat({"trainer": {"lr": 0.1, "optimizer": {"name": "SGD"}}})
    {'trainer.lr': 0.1, 'trainer.optimizer.name': 'SGD'}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        path = f"{before}{name}"
        found |= flat(value, f"{path}.") if isinstance(value, Mapping) and value else {path: value}
    return found


def _is_shallow(value: Any, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return True
    inside = value.values() if isinstance(value, dict) else value
    # Most values are flat, and there are very many: only what is nested is looked into.
    nested = [part for part in inside if isinstance(part, (dict, list))]
    return levels > 0 and all(_is_shallow(part, levels - 1) for part in nested)
