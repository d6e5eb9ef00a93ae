"""What data and callbacks keep in Python: no checkpoint holds it, and a run that is resumed without it says so.

Looked at are numbers and texts (a counter, a scale, a level), random generators, and small arrays, tensors and
containers of these (weights of samples, past losses), by the code that reads them. What else data keeps may be large,
and what reading moves is not where a later position would have it: so nothing of it is put back.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from torch import Tensor, nn

from brim.data.randomness.generators import GENERATORS
from brim.engine.sandbox.holders import codes_of, has_state_dict
from brim.engine.sandbox.names_read import names_read
from brim.engine.sandbox.python_state import NO_OBJECTS
from brim.engine.sandbox.users_code import closure_of, is_users, is_users_code, names_in
from brim.engine.state.host_copy import bytes_of
from brim.engine.state.plain_value import DICTS, LISTS, digest_of, to_plain
from brim.errors import some_of

MOST_OBJECTS = 500
MOST_ITEMS = 64  # of a container that are looked into
MOST_LETTERS = 1000
MOST_KEPT = 4096  # items of a container whose change is told
MOST_BYTES = 1 << 20  # of a tensor or array whose change is told
SHOWN = 4  # names in a sentence
UNSEEN = object()
NOTHING = digest_of(None)
Values = dict[str, Any]  # by class and attribute


class UnsavedState:
    """What some objects, and those that they hold, keep at the start of a run, at a checkpoint, and when it goes on.

    ``but_for``: objects that a checkpoint has anyway.
    """

    def __init__(self, roots: Iterable[Any], but_for: Iterable[Any] = ()) -> None:
        self._roots, self._but_for = list(roots), list(but_for)
        self._start: Values = {}
        self._expected: Values = {}

    def take(self) -> Values:
        """What has changed since the run began, for a checkpoint; what there was not, or was None, has been made."""
        now = self._look()
        moved = {name: value for name, value in now.items() if _has_moved(self._start.get(name), value)}
        if not moved:
            return moved
        read = names_read(codes_in(self._roots))
        return {name: _mark(value) for name, value in moved.items() if name.rpartition(".")[2].rstrip("'") in read}

    def expect(self, taken: Values) -> None:
        """A checkpoint was loaded, at which this was so."""
        self._expected = taken

    def begin(self) -> str | None:
        """The first step comes next, and callbacks have put back what they know of; returns what to tell the user."""
        now = self._start = self._look()
        lost = [name for name, mark in self._expected.items() if _mark(now.get(name)) != mark]
        self._expected = {}
        if not lost:
            return None
        return (
            f"{some_of(lost, SHOWN)} had changed by then, and no checkpoint holds what data and callbacks keep: the "
            "run goes on with what your script has built; keep it in a callback with state_dict and load_state_dict"
        )

    def _look(self) -> Values:
        found: Values = {}
        for one in objects_in(self._roots):
            if not is_users(type(one)) or has_state_dict(one):
                continue
            for name, value in list({**_numbers_of_class(type(one)), **getattr(one, "__dict__", {})}.items()):
                if (hasattr(one, "set_epoch") and "epoch" in name) or any(value is kept for kept in self._but_for):
                    continue  # brim tells it, or puts it back
                if (content := _content(value)) is not UNSEEN:
                    label = f"{type(one).__name__}.{name}"
                    while label in found:  # another of the same class
                        label += "'"
                    found[label] = content
        return found


@dataclass(frozen=True)
class MarkedContent:
    """What is no single number or text, by its ``mark``; ``parts`` are those of its items, by key or place."""

    mark: str
    parts: dict[str, str] | None = None

    def grew_from(self, before: "MarkedContent") -> bool:
        """Whether nothing of it was replaced but None: a cache that fills."""
        if self.parts is None or before.parts is None:
            return False
        return all(part == NOTHING or self.parts.get(key) == part for key, part in before.parts.items())


def _numbers_of_class(kind: type) -> dict[str, Any]:
    """What its objects begin with where they have nothing of their own: ``reads = 0``, later ``self.reads += 1``."""
    return {
        name: value
        for base in reversed(kind.__mro__)
        if is_users(base)
        for name, value in vars(base).items()
        if _is_scalar(value) and not name.startswith("__")
    }


def _content(value: Any) -> Any:
    """A value, or what it takes to tell it from others; :data:`UNSEEN` where it is not looked at."""
    if _is_scalar(value):
        return "nan" if isinstance(value, float) and math.isnan(value) else value  # which equals nothing, not itself
    try:
        plain = to_plain(value) if _is_small(value) else UNSEEN
    except Exception:  # it is no plain data, or does something when it is looked at: a look ends no run
        return UNSEEN
    return UNSEEN if plain is UNSEEN or bytes_of(plain) > MOST_BYTES else MarkedContent(digest_of(plain), _parts(plain))


def _is_small(value: Any) -> bool:
    if isinstance(value, Tensor | np.ndarray):
        return bool(value.nbytes <= MOST_BYTES)
    return isinstance(value, GENERATORS) or (type(value) in (*LISTS, *DICTS) and len(value) <= MOST_KEPT)


def _parts(plain: Any) -> dict[str, str] | None:
    kind, content, *_ = plain
    if kind in [one.__name__ for one in DICTS]:
        return {digest_of(key): digest_of(item) for key, item in content}
    if kind not in ("list", "tuple"):
        return None
    return {"length": str(len(content)), **{str(place): digest_of(item) for place, item in enumerate(content)}}


def _has_moved(before: Any, now: Any) -> bool:
    """Whether there is another value, and not one that was made where there was none."""
    if before is None or before == now:
        return False
    both = isinstance(before, MarkedContent) and isinstance(now, MarkedContent)
    return not (both and now.grew_from(before))


def _mark(content: Any) -> Any:
    return content.mark if isinstance(content, MarkedContent) else content


def _is_scalar(value: Any) -> bool:
    return isinstance(value, bool | int | float) or value is None or (type(value) is str and len(value) < MOST_LETTERS)


def codes_in(readers: Iterable[Any]) -> Iterator[CodeType]:
    """The code of functions, and of objects and what they are made of: a loader's data set, samplers and functions."""
    for reader in objects_in(readers):
        if isinstance(reader, FunctionType):
            yield reader.__code__
        else:
            yield from codes_of([type(reader)])


def objects_in(roots: Iterable[Any]) -> Iterator[Any]:
    """Objects and functions, and those that they hold; of modules and tensors, nothing."""
    seen: dict[int, Any] = {}
    to_visit = deque(roots)
    while to_visit and len(seen) < MOST_OBJECTS:
        one = to_visit.popleft()
        if id(one) in seen or _is_scalar(one) or isinstance(one, (Tensor, nn.Module, type, *NO_OBJECTS)):
            continue
        seen[id(one)] = one
        yield one
        if isinstance(one, FunctionType):
            to_visit += _named_by(one)
        elif isinstance(one, list | tuple | dict):
            to_visit += islice(one.values() if isinstance(one, dict) else one, MOST_ITEMS)
        else:  # by its dictionary: a property of a loader may begin to read
            to_visit += getattr(one, "__dict__", {}).values()
            if is_users(type(one)):
                to_visit += [method for method in vars(type(one)).values() if isinstance(method, FunctionType)]


def _named_by(function: FunctionType) -> Iterator[Any]:
    """What a function of the user's closes over, and the globals that it names."""
    if is_users(function):
        yield from (held for _, held in closure_of(function))
    if is_users_code(function):
        yield from (function.__globals__.get(name) for name in names_in(function.__code__))
