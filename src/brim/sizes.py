"""Sizes: bytes as people write and read them, those of tensors, and numbers of something."""

import re
from typing import TYPE_CHECKING, Any

from brim.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
WRITTEN = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")
GIB = 1 << 30
MOST = 1 << 60
LEAST_MEMORY = 1 << 20  # of a card: less than torch takes at a time


def parse_bytes(written: str | int | float, name: str = "memory") -> int:
    """A number of bytes, or a text such as ``8GiB``, ``500 MB`` or ``24G`` (the last means GiB).

    >>> parse_bytes("8GiB")
    8589934592
    """
    if isinstance(written, int | float) and not isinstance(written, bool) and 1 <= written <= MOST:
        return int(written)
    match = WRITTEN.fullmatch(str(written))
    factor = UNITS.get(match[2].upper()) if match else None
    if match is None or factor is None or not 1 <= float(match[1]) * factor <= MOST:
        raise ConfigError(f"{name}={written!r} is not an amount of memory; write it as 8GiB or 500MB")
    return int(float(match[1]) * factor)


def parse_memory(written: str | int | float) -> int:
    """Bytes of a card that may be taken. A number of GiB without its unit is no amount that anything fits in.

    >>> parse_memory("500 MB")
    500000000
    """
    size = parse_bytes(written)
    if size < LEAST_MEMORY:
        raise ConfigError(f"memory={written!r} is an amount of {size} bytes; write it with its unit, as 8GiB or 500MB")
    return size


def show_bytes(size: float) -> str:
    """In GiB from 1 GiB on, else in MiB."""
    return f"{size / GIB:,.2f} GiB" if abs(size) >= GIB else f"{size / (1 << 20):,.1f} MiB"


def bytes_of(tensor: "Tensor") -> int:
    """What its numbers take; ``nbytes`` refuses sparse tensors."""
    return tensor.numel() * tensor.element_size()


def check_whole(name: str, value: Any, or_else: str = "") -> None:
    """Refuse what is no number of something; ``or_else``: what else it may be, for the sentence."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        shown = " ".join(repr(value).split())[:60]  # a tensor takes several lines
        raise ConfigError(f"{name}={shown} must be a whole number of at least 1{or_else and f' or {or_else}'}")


def known_length(value: Any) -> int | None:
    """The length of something, or None where it has none, or does not know it."""
    try:
        return len(value)
    except (TypeError, NotImplementedError):
        return None
