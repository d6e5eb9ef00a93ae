"""What a data set remembers: whether reading it, or somebody between two reads, has changed it.

A data set that learns while it is read (a curriculum, a running mean, a list of hard samples, a generator of its own)
is another one after each read. Worker processes would each have such a memory of their own and lose it.
"""

import logging
import types
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Set
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brim.data.garbage import gc_paused
from brim.data.probing.attributes import attributes_of, slot_names
from brim.data.probing.code_references import content_of, is_own, references
from brim.data.randomness.generators import GENERATORS, mark_of
from brim.sizes import bytes_of

PLAIN = (int, float, bool, str, bytes, complex, types.NoneType)
EQUAL_BY_VALUE = frozenset((int, bool, str, bytes, types.NoneType))  # where the type is the same too
NUMPYS = frozenset((torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32, torch.float64, torch.float16))
BARE = frozenset((list, tuple, dict, set, frozenset, deque))  # containers that have no attributes
OPAQUE = types.ModuleType | logging.Logger  # other people's affairs
ENDS = 50  # items of a container that is too long to be looked at whole, from either end
CODE = "its class, or something that its code uses"
Mark = Any  # anything that can be compared: the same before and after means that nothing changed


class StateWatch:
    """Notices changes of a data set: of its attributes at any depth, of its class, and of the closures and globals that
    its code names (unless ``code`` is False).

    ``most_parts`` and ``most_bytes`` say how much of it is looked at each time; what is beyond counts by its identity,
    its length and its ends. ``met_shared_memory``: part of that lies where other processes write as well.

    >>> data = types.SimpleNamespace(reads=0, seen=[])
    >>> watch = StateWatch(data)
    >>> watch.changed() is None
    True
    >>> data.seen.append(3)
    >>> watch.changed()
    'seen'
    """

    def __init__(self, data: Any, most_parts: int = 20_000, most_bytes: int = 64 << 20, code: bool = True) -> None:
        self._data = data
        self._limits = most_parts, most_bytes, code
        self.met_shared_memory = False
        self._before = self.marks()

    def changed(self) -> str | None:
        """The name of the first attribute that is not what it was; None where all are."""
        now = self.marks()
        for name in {**self._before, **now}:
            if name not in now or name not in self._before or self._before[name] != now[name]:
                return name
        return None

    def is_of(self, data: Any) -> bool:
        """Whether it watches this object, and not a copy of it."""
        return self._data is data

    def marks(self) -> dict[str, Mark]:
        """What is looked at now, by name."""
        walk = _Walk(*self._limits)
        with gc_paused():  # marks are many small objects, of which none is garbage
            marks = self._marks_by(walk)
        self.met_shared_memory = self.met_shared_memory or walk.met_shared_memory
        return marks

    def _marks_by(self, walk: "_Walk") -> dict[str, Mark]:
        data = self._data
        is_plain = type(data) in (list, tuple, dict) or isinstance(data, types.FunctionType | types.MethodType)
        if is_plain or not (hasattr(data, "__dict__") or slot_names(type(data))):
            return {"content": walk.mark(data)}
        marks = {name: walk.mark(value) for name, value in attributes_of(data)}
        if self._limits[2]:
            marks[CODE] = walk.mark(type(data))
        if isinstance(data, list | dict | tuple):
            marks["content"] = walk.items(data)
        return marks


def brief_watch(data: Any) -> StateWatch:
    """One that can be asked after every batch: its attributes, and of large ones their ends."""
    return StateWatch(data, most_parts=300, most_bytes=64 << 10, code=False)


def holds_shared_memory(data: Any) -> bool:
    """Whether part of ``data`` lies where other processes write as well: a copy of the process does not protect it."""
    walk = _Walk(20_000, 0, True)
    with gc_paused():
        walk.mark(data)
    return walk.met_shared_memory


class _Walk:
    """Marks of anything that a data set may hold, within a number of parts and bytes."""

    def __init__(self, parts: int, size: int, code: bool) -> None:
        self.parts, self.bytes, self.code = parts, size, code
        self.met_shared_memory = False
        self._met: dict[int, Any] = {}  # kept alive, or another object could get the same id
        self._own: dict[str, bool] = {}  # modules, by name: whether they are the user's

    def mark(self, thing: Any) -> Mark:
        if isinstance(thing, PLAIN) and type(thing) in PLAIN:
            return type(thing), repr(thing) if isinstance(thing, float | complex) else thing
        if id(thing) in self._met:
            return "met before", id(thing)
        self._met[id(thing)] = thing
        self.parts -= 1
        if self.parts < 0:
            return type(thing), id(thing), len(thing) if hasattr(type(thing), "__len__") else 0
        return type(thing), self._content(thing)

    def _content(self, thing: Any) -> Mark:
        if isinstance(thing, Tensor):
            return self._tensor(thing)
        if isinstance(thing, np.ndarray):
            return self._array(thing)
        if isinstance(thing, GENERATORS):
            return mark_of(thing)
        if isinstance(thing, list | tuple | dict | Set | deque):
            return self.items(thing), self._attributes(thing)
        if isinstance(thing, OPAQUE) or (isinstance(thing, type | types.FunctionType) and not self.code):
            return id(thing)
        if isinstance(thing, type):
            return self._class(thing)
        if isinstance(thing, types.FunctionType):
            return self._function(thing)
        if isinstance(thing, types.MethodType):
            return self.mark(thing.__func__), self.mark(thing.__self__)
        if isinstance(thing, Iterator):
            return self._iterator(thing)
        if type(thing).__module__.startswith("pandas.") and hasattr(thing, "_mgr"):
            # Not by its attributes: it keeps what was asked of it, and so changes with every look.
            return tuple(self._array(np.asarray(column)) for column in thing._mgr.arrays)
        if type(thing).__module__.startswith("multiprocessing"):
            self.met_shared_memory = True
        return id(thing), self._attributes(thing), self.mark(type(thing)) if self.code else None

    def items(self, thing: Any) -> Mark:
        size = len(thing)
        if isinstance(thing, Set):
            return size, frozenset(self.mark(item) for item in thing) if size <= self.parts else id(thing)
        if size > self.parts:
            near_start = islice(iter(thing), ENDS)
            near_end = islice(reversed(thing), ENDS) if isinstance(thing, list | tuple | deque | dict) else ()
            return id(thing), size, tuple(map(id, chain(near_start, near_end)))
        if isinstance(thing, Mapping):
            pairs = list(thing.items())
            return self._row([key for key, _ in pairs]), self._row([value for _, value in pairs])
        return self._row(thing)

    def _row(self, items: Any) -> Mark:
        """Of items in their order; many that are plain are taken as they are, which takes a tenth of the time."""
        kinds = set(map(type, items))
        if not kinds <= EQUAL_BY_VALUE:
            return tuple(map(self.mark, items))
        return (*kinds, tuple(items)) if len(kinds) < 2 else tuple((type(item), item) for item in items)

    def _attributes(self, thing: Any) -> Mark:
        if type(thing) in BARE:
            return ()
        kept = [(name, value) for name, value in attributes_of(thing) if not _is_told_once(thing, name)]
        return tuple((name, self.mark(value)) for name, value in kept)

    def _tensor(self, tensor: Tensor) -> Mark:
        self.met_shared_memory = self.met_shared_memory or _is_shared(tensor)
        about = tensor.shape, tensor.dtype, tensor.device
        size = bytes_of(tensor)
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not self._room_for(size):
            return *about, id(tensor), tensor._version
        return *about, zlib.crc32(_bytes(tensor.detach()))

    def _array(self, values: np.ndarray[Any, Any]) -> Mark:
        about = values.shape, values.dtype.str
        if values.dtype.hasobject:
            return *about, self.items(values.ravel().tolist()) if values.size <= self.parts else id(values)
        if not self._room_for(values.nbytes):
            return *about, id(values)
        return *about, zlib.crc32(_buffer(np.ascontiguousarray(values).reshape(-1).view(np.uint8)))

    def _room_for(self, size: int) -> bool:
        if size > self.bytes:
            return False
        self.bytes -= size
        return True

    def _class(self, kind: type) -> Mark:
        """What is kept in a class of the user's, and the code that its methods bring along."""
        own = [base for base in kind.__mro__ if self._is_own(base.__module__)]
        return tuple((name, self.mark(value)) for base in own for name, value in list(vars(base).items())
                     if not name.startswith("__") or callable(value))  # fmt: skip

    def _is_own(self, module: str) -> bool:
        """Whether it is the user's; brim's are not, installed or beside them."""
        if module not in self._own:
            self._own[module] = module.partition(".")[0] != "brim" and is_own(module)
        return self._own[module]

    def _function(self, function: types.FunctionType) -> Mark:
        if not self._is_own(str(function.__globals__.get("__name__"))):
            return id(function)
        cells = tuple(self.mark(content_of(cell)) for cell in function.__closure__ or ())
        names = sorted({name for name, *_ in references(function.__code__) if name in function.__globals__})
        return id(function), cells, tuple((name, self.mark(function.__globals__[name])) for name in names)

    def _iterator(self, iterator: Iterator[Any]) -> Mark:
        if hasattr(iterator, "tell"):  # a file
            return id(iterator), _position(iterator)
        try:
            return self.mark(iterator.__reduce__())
        except Exception:  # a generator: nobody can see how far it is, so it counts as moved
            return object()


def _is_told_once(thing: Any, name: str) -> bool:
    """Whether it is where a tokenizer of transformers notes which advice it has given: its first padding does."""
    return name == "deprecation_warnings" and any(
        base.__module__.startswith("transformers.") for base in type(thing).__mro__
    )


def _position(file: Any) -> Any:
    try:
        return file.tell()
    except (OSError, ValueError):
        return object()


def _is_shared(tensor: Tensor) -> bool:
    if tensor.device.type != "cpu":
        return False
    try:
        return bool(tensor.untyped_storage().is_shared())
    except NotImplementedError:  # a sparse one: where its parts lie is not looked at, so they may be shared
        return True


def _bytes(tensor: Tensor) -> memoryview:
    is_plain = tensor.dtype in NUMPYS and tensor.is_contiguous() and not tensor.is_neg()
    return _buffer(tensor.numpy() if is_plain else tensor.contiguous().view(-1).view(torch.uint8).numpy())


def _buffer(values: Any) -> memoryview:
    return memoryview(values)
