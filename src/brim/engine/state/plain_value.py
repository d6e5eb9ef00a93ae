"""Values that users' code keeps in Python, as plain data that a checkpoint may hold, and back.

Numbers, texts, tensors, arrays, random generators, and containers of these. What can run code when it is read again, or
cannot be made again from data (an iterator, a model's output), is none of them.
"""

import ast
import hashlib
import itertools
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from enum import Enum
from types import NoneType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brim.data.randomness.generators import GENERATORS, plain_state, set_plain_state
from brim.engine.state.fingerprint import contents, has_fingerprint
from brim.errors import a_type

SCALARS = (bool, int, float, str, NoneType)
LISTS = (list, tuple, deque, set, frozenset)
DICTS = (dict, OrderedDict, Counter, defaultdict)
MOST_BYTES = 16 << 20  # of a tensor or array
MOST_ITEMS = 100_000  # in all containers of a value
MOST_TENSORS = 1000  # each is a record of its own in the file
DEPTH = 8  # of containers within containers


class CannotKeep(Exception):
    """A value that is no plain data; the sentence says what it is."""


def to_plain(value: Any, is_state: bool = False) -> Any:
    """The value as data; raises :class:`CannotKeep`. Tensors in it are those of the value, not copies.

    ``is_state``: it is what an object's ``state_dict`` returned, of any size, and is made again from the data alone.

    >>> to_plain((3, [0.5]))
    ('tuple', [3, ('list', [0.5])])
    """
    return _Writer(is_state).plain(value, DEPTH)


class _Writer:
    def __init__(self, is_state: bool) -> None:
        self._is_state = is_state
        self._items = self._tensors = 0

    def plain(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in SCALARS:
            return value
        if kind is bytes:
            return "bytes", value.decode("latin-1")
        if self._is_state and isinstance(value, (Enum, defaultdict, *GENERATORS)):
            raise CannotKeep(f"a {kind.__name__}")  # which lives on in an object that is there already
        if isinstance(value, Enum):
            return "enum", kind.__name__, value.name
        if isinstance(value, Tensor):
            return "tensor", self._tensor(value), value.device.type != "cpu"
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
            self._check_size(value.nbytes)
            return "number" if kind is not np.ndarray else "array", self._tensor(_as_tensor(value)), str(value.dtype)
        if isinstance(value, GENERATORS):
            return "generator", kind.__name__, plain_state(value)
        if kind is itertools.count:
            return "count", ast.literal_eval(repr(value).removeprefix("count"))
        if kind in LISTS or kind in DICTS:
            return self._container(value, depth)
        raise CannotKeep(f"a {kind.__name__}")

    def _tensor(self, tensor: Tensor) -> Tensor:
        self._tensors += 1
        if self._tensors > MOST_TENSORS:
            raise CannotKeep(f"more than {MOST_TENSORS:,} tensors")
        if not has_fingerprint(tensor):
            raise CannotKeep(f"{a_type(tensor)} that is no plain numbers")
        self._check_size(tensor.nbytes)
        return tensor.detach()

    def _check_size(self, size: int) -> None:
        if not self._is_state and size > MOST_BYTES:
            raise CannotKeep(f"{size >> 20} MiB of numbers")

    def _container(self, value: Any, depth: int) -> Any:
        self._items += len(value)
        if self._items > MOST_ITEMS or depth == 0:
            raise CannotKeep(f"{a_type(value)} with too much in it")
        if isinstance(value, dict):
            pairs = [[self.plain(key, depth - 1), self.plain(item, depth - 1)] for key, item in value.items()]
            return type(value).__name__, pairs
        items = [self.plain(item, depth - 1) for item in value]
        if isinstance(value, set | frozenset):
            items.sort(key=repr)
        more = (value.maxlen,) if isinstance(value, deque) else ()
        return type(value).__name__, items, *more


def digest_of(plain: Any) -> str:
    """The same for the same data, in every process.

    >>> digest_of(to_plain([0.5])) == digest_of(to_plain([0.5])) != digest_of(to_plain([0.25]))
    True
    """
    if type(plain) in SCALARS:  # most
        return f"{type(plain).__name__} {plain!r}"
    tensors: dict[str, Tensor] = {}
    text = repr(_named_tensors(plain, tensors))
    return hashlib.sha256(f"{text} {contents(tensors)}".encode()).hexdigest()[:32]


def _named_tensors(plain: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(plain, Tensor):
        name = str(len(tensors))
        tensors[name] = plain
        return name
    if isinstance(plain, list | tuple):
        return type(plain)(_named_tensors(item, tensors) for item in plain)
    return {key: _named_tensors(item, tensors) for key, item in plain.items()} if isinstance(plain, dict) else plain


def from_plain(plain: Any, device: torch.device, now: Any = None) -> Any:
    """The value that data was made of. Where ``now`` is of its kind, that object becomes it: others may hold it too.

    Raises :class:`CannotKeep` where the value lives on in an object that is not there.
    """
    if not isinstance(plain, tuple):
        return plain
    kind, content, *rest = plain
    if kind == "tensor":
        return _tensor_like(content, device if rest[0] else torch.device("cpu"), now)
    if kind in ("array", "number"):
        return _array_like(content, rest[0], kind, now)
    if kind == "generator":
        if type(now).__name__ != content:
            raise CannotKeep(f"a {content}")
        set_plain_state(now, rest[0])
        return now
    if kind == "bytes":
        return content.encode("latin-1")
    if kind == "enum":
        if not isinstance(now, Enum) or type(now).__name__ != content:
            raise CannotKeep(f"a {content}")
        return type(now)[rest[0]]
    if kind == "count":
        return itertools.count(*(content if isinstance(content, tuple) else (content,)))
    return _container_like(kind, content, rest, device, now)


def _tensor_like(saved: Tensor, device: torch.device, now: Any) -> Tensor:
    if isinstance(now, Tensor) and (now.shape, now.dtype) == (saved.shape, saved.dtype) and now.grad_fn is None:
        with torch.no_grad():
            now.detach().copy_(saved)
        return now
    return saved.to(device, copy=True)


def _array_like(saved: Tensor, dtype: str, kind: str, now: Any) -> Any:
    values = saved.numpy().astype(dtype)
    if kind == "number":
        return values.reshape(())[()]
    if isinstance(now, np.ndarray) and (now.shape, str(now.dtype)) == (values.shape, dtype) and now.flags.writeable:
        now[...] = values
        return now
    return values


def _container_like(kind: str, content: list[Any], rest: list[Any], device: torch.device, now: Any) -> Any:
    made: Any
    if kind in [one.__name__ for one in DICTS]:
        made = {from_plain(key, device): from_plain(item, device) for key, item in content}
        if type(now).__name__ == kind:
            return _refilled(now, now.update, made)
        if kind == "defaultdict":
            raise CannotKeep("a defaultdict, whose function of defaults is not there")
        return {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}[kind](made)
    items = [from_plain(item, device) for item in content]
    is_alike = type(now).__name__ == kind and (kind != "deque" or now.maxlen == rest[0])
    if is_alike and kind in ("list", "set", "deque"):
        return _refilled(now, now.update if kind == "set" else now.extend, items)
    if kind == "deque":
        return deque(items, maxlen=rest[0])
    return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind](items)


def _refilled(container: Any, fill: Any, items: Iterable[Any]) -> Any:
    container.clear()
    fill(items)
    return container


def _as_tensor(array: Any) -> Tensor:
    try:
        return torch.from_numpy(np.array(array))
    except TypeError:  # unsigned integers of older versions, extended floats
        raise CannotKeep(f"an array of {array.dtype}") from None
