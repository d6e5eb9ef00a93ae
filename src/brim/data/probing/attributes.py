"""What is stored in an object under a name."""

import copyreg
from typing import Any


def slot_names(kind: type) -> list[str]:
    """The slots of a class and of its bases, under the names that they are stored by."""
    names: list[str] = copyreg._slotnames(kind)  # type: ignore[attr-defined]
    return names


def attributes_of(thing: Any) -> list[tuple[str, Any]]:
    """In its dictionary and its slots, none of which is asked of its class.

    >>> attributes_of(type("Point", (), {"__slots__": ("x", "y"), "__init__": lambda self: setattr(self, "x", 1)})())
    [('x', 1)]
    """
    own = getattr(thing, "__dict__", None)
    stored = list(own.items()) if isinstance(own, dict) and own is not thing else []
    return [*stored, *((name, getattr(thing, name)) for name in slot_names(type(thing)) if hasattr(thing, name))]
