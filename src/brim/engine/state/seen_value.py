"""A value of users' code at one moment: whether it is another one later, and as data where it is plain."""

import weakref
import zlib
from collections import deque
from dataclasses import dataclass, replace
from itertools import islice
from types import GeneratorType
from typing import Any

import numpy as np
from torch import Tensor

from brim.engine.state.plain_value import CannotKeep, digest_of, to_plain
from brim.errors import a_type

MOST_ITEMS = 64  # of a container that cannot be kept, whose items are told apart
UNSEEN = "somewhere"  # the mark of an iterator that does not show how far it is
MOST_BYTES = 256 << 20  # of an array that is read whole


@dataclass(frozen=True)
class SeenValue:
    """``mark`` is another one for another value; ``plain`` is the value as data, where ``is_plain``.

    What is no data is known by where it is, and not kept alive: it may hold the graph of a step.
    """

    mark: str
    plain: Any = None
    is_plain: bool = True
    kind: str = ""
    moves_on: bool = False  # an iterator: used once, it is elsewhere
    alive: "weakref.ref[Any] | None" = None

    @property
    def digest(self) -> str:
        """The same in every process of the same script."""
        return self.mark if self.is_plain else self.kind

    def without_content(self) -> "SeenValue":
        """What it takes to tell whether it is the same later."""
        return replace(self, plain=None)

    def is_same(self, earlier: "SeenValue | None") -> bool:
        """Whether the value is what it was then."""
        if earlier is None or self.mark != earlier.mark or self.mark == UNSEEN:
            return False
        return earlier.alive is None or earlier.alive() is not None


def see(value: Any) -> SeenValue:
    """The value as it is now."""
    try:
        plain = to_plain(value)
        return SeenValue(digest_of(plain), plain)
    except CannotKeep as reason:
        return SeenValue(_mark(value), None, False, str(reason), alive=_reference(value))
    except Exception:  # whatever an object of the user's does when it is looked at: a look ends no run
        return SeenValue(str(id(value)), None, False, f"{a_type(value)}", alive=_reference(value))


def _mark(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{id(value)} {tuple(value.shape)} {'' if value.is_inference() else value._version}"
    if isinstance(value, np.ndarray):
        is_read = value.nbytes <= MOST_BYTES and not value.dtype.hasobject
        return f"{id(value)} {zlib.crc32(np.ascontiguousarray(value).data) if is_read else ''}"
    if isinstance(value, dict | list | tuple | set | frozenset):
        items = list(islice(value, MOST_ITEMS))
        items += [value[key] for key in items] if isinstance(value, dict) else []
        return f"{id(value)} {len(value)} {[id(item) for item in items]}"
    return f"{id(value)} {len(value) if isinstance(value, deque) else ''}"


def position_of(iterator: Any) -> str:
    """How far an iterator is; where nobody can see that, it counts as another place each time."""
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        return "over" if frame is None else f"{frame.f_lasti} {sorted(map(str, frame.f_locals.items()))}"[:1000]
    given = getattr(iterator, "_num_yielded", None)  # of a DataLoader
    if given is None and hasattr(iterator, "__length_hint__"):
        given = iterator.__length_hint__()
    return UNSEEN if given is None else f"{id(iterator)} {given}"


def see_iterator(iterator: Any) -> SeenValue:
    """An iterator, by how far it is."""
    kind = f"{a_type(iterator)}"
    return SeenValue(position_of(iterator), None, False, kind, True, _reference(iterator))


def _reference(value: Any) -> "weakref.ref[Any] | None":
    try:
        return weakref.ref(value)
    except TypeError:
        return None
