"""Attributes of torch that are others for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def patched(owner: Any, **attributes: Any) -> Iterator[None]:
    """Other attributes of a module or class, until the block ends; those that it only inherited are inherited again."""
    own = {name: vars(owner)[name] for name in attributes if name in vars(owner)}
    try:
        for name, value in attributes.items():
            setattr(owner, name, value)
        yield
    finally:
        for name in attributes:
            if name in own:
                setattr(owner, name, own[name])
            elif name in vars(owner):
                delattr(owner, name)
