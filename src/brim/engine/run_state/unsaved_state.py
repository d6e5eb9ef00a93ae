"""What data and callbacks keep in Python: no checkpoint holds it, and a run that is resumed without it says so.

Looked at are numbers and texts (a counter, a scale, a level), by the code that reads them. What else data keeps may be
large, and what reading moves is not where a later position would have it: so nothing of it is put back.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from types import CodeType, FunctionType
from typing import Any

from torch import Tensor, nn

from brim.engine.sandbox.holders import codes_of, has_state_dict
from brim.engine.sandbox.names_read import names_read
from brim.engine.sandbox.python_state import NO_OBJECTS
from brim.engine.sandbox.users_code import closure_of, is_users, names_in
from brim.errors import some_of

MOST_OBJECTS = 500
MOST_ITEMS = 64  # of a container that are looked into
MOST_LETTERS = 1000
SHOWN = 4  # names in a sentence
Values = dict[str, Any]  # by class and attribute


class UnsavedState:
    """What some objects, and those that they hold, keep at the start of a run, at a checkpoint, and when it goes on."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self._roots = list(roots)
        self._start: Values = {}
        self._expected: Values = {}

    def take(self) -> Values:
        """What has changed since the run began, for a checkpoint; what there was not, or was None, has been made."""
        now = self._look()
        moved = {name: value for name, value in now.items() if self._start.get(name, value) not in (value, None)}
        if not moved:
            return moved
        read = names_read(codes_in(self._roots))
        return {name: value for name, value in moved.items() if name.rpartition(".")[2].rstrip("'") in read}

    def expect(self, taken: Values) -> None:
        """A checkpoint was loaded, at which this was so."""
        self._expected = taken

    def begin(self) -> str | None:
        """The first step comes next, and callbacks have put back what they know of; returns what to tell the user."""
        now = self._start = self._look()
        lost = [name for name, value in self._expected.items() if now.get(name) != value]
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
            for name, value in list(getattr(one, "__dict__", {}).items()):
                if _is_looked_at(value) and not (hasattr(one, "set_epoch") and "epoch" in name):  # brim tells it
                    label = f"{type(one).__name__}.{name}"
                    while label in found:  # another of the same class
                        label += "'"
                    found[label] = value
        return found


def _is_looked_at(value: Any) -> bool:
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
        if id(one) in seen or _is_looked_at(one) or isinstance(one, (Tensor, nn.Module, type, *NO_OBJECTS)):
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
        yield from (function.__globals__.get(name) for name in names_in(function.__code__))
