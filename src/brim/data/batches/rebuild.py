"""Containers made anew around other values, without running anything that their classes do when one is made.

A class may scale, pad or check what it is given (``__post_init__``, ``__new__``, ``__setitem__``). It did so once, when
the user made the batch; a batch that is moved or sliced must not go through it again.
"""

import dataclasses
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Mapping
from typing import Any

from brim.data.probing.attributes import slot_names


def attribute_names(part: Any) -> list[str]:
    """What is stored in a dataclass: its fields first, then what it was given besides. Properties are not stored."""
    stored = dict.fromkeys(getattr(part, "__dict__", ()))
    stored.update(dict.fromkeys(name for name in slot_names(type(part)) if hasattr(part, name)))
    fields = [field.name for field in dataclasses.fields(part) if field.name in stored]
    return [*fields, *(name for name in stored if name not in fields)]


def with_attributes(part: Any, values: dict[str, Any]) -> Any:
    """A dataclass like ``part``, frozen or not, whose attributes are ``values``."""
    made = object.__new__(type(part))
    own = getattr(made, "__dict__", {})
    slots = set(slot_names(type(part)))
    for name, value in values.items():
        if name in slots:
            object.__setattr__(made, name, value)
        else:
            own[name] = value  # not by setattr: a property of the same name would run
    return made


def with_items(part: Any, values: list[Any]) -> Any:
    """A list or tuple like ``part``, of its type, whose items are ``values``."""
    kind: Any = type(part)
    if kind is tuple or kind is list:
        return kind(values)
    if isinstance(part, list):
        made = kind.__new__(kind)
        list.extend(made, values)
    elif hasattr(part, "_fields"):
        made = kind._make(values)  # past a __new__ of the user's own
    else:
        made = kind(values)  # torch.Size, and what torch.max and its like give, insist on it
    return _with_attributes_of(part, made)


def with_content(part: Mapping[Any, Any], content: dict[Any, Any]) -> Any:
    """A mapping like ``part``, of its type, with another ``content`` under the same keys."""
    kind: Any = type(part)
    if kind is dict:
        return content
    if isinstance(part, UserDict):
        made = kind.__new__(kind)
        made.__dict__.update(vars(part))
        made.data = content
        return made
    if not isinstance(part, dict):
        return kind(content)
    made = kind.__new__(kind)
    put = OrderedDict.__setitem__ if isinstance(part, OrderedDict) else dict.__setitem__
    for key, value in content.items():
        put(made, key, value)
    if isinstance(part, defaultdict):
        made.default_factory = part.default_factory
    if getattr(part, "__dict__", None) is part:  # keys as attributes, by the short way
        object.__setattr__(made, "__dict__", made)
        return made
    return _with_attributes_of(part, made)


def _with_attributes_of(part: Any, made: Any) -> Any:
    """``made`` with what was set on ``part``. An attribute that is one of its values (transformers' outputs have each
    under both names) is the new one."""
    for name, value in getattr(part, "__dict__", {}).items():
        is_item = isinstance(part, dict) and name in part and part[name] is value
        made.__dict__[name] = made[name] if is_item else value
    return made
