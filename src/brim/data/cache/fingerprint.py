"""A hash of what a function computes and of what a data set holds, the same in every process.

Code goes in as bytecode with everything it refers to, values by their content, installed packages by their version,
files by size and time of modification. Nothing depends on addresses, on the order of sets or on PYTHONHASHSEED. What
cannot be hashed that way is refused, by where it was met.
"""

import contextlib
import copyreg
import enum
import hashlib
import json
import mmap
import os
import struct
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brim.data.cache.fingerprint_code import write_callable, write_class, write_code, write_module
from brim.data.cache.fingerprint_files import FileFacts, TooManyFiles
from brim.data.cache.packed_sample import as_bytes
from brim.data.probing.attributes import attributes_of
from brim.data.probing.code_references import is_own, version_of
from brim.errors import DataError

LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event, threading.Semaphore)
PLAIN = frozenset((int, float, bool, str, types.NoneType))
CONTAINERS = frozenset((list, tuple, dict, set, frozenset))

OF_THIS_PROCESS = ("_original_object_hash",)  # transformers keeps hash(...) there, another one in every process


def fingerprint(transform: Any, source: Any, leave_out: Path | None = None) -> str:
    """32 hexadecimal digits for ``transform`` applied to ``source``; files below ``leave_out`` do not count.

    >>> fingerprint(abs, [1, 2]) == fingerprint(abs, [1, 2]) != fingerprint(abs, [1, 3])
    True
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    hasher = _Hasher(leave_out)
    hasher.text(f"python {python}, torch {torch.__version__}, byte order {sys.byteorder}")
    with hasher.at("the transform"):
        hasher.value(transform)
    with hasher.at("the data set"):
        hasher.value(source)
    return hasher.digest.hexdigest()[:32]


def structure_fingerprint(*things: Any) -> str:
    """32 hexadecimal digits for what decides how much memory things take: code, settings, and tensors by their shape.

    Whole numbers count by their values, for a model may choose by them, and files that something names do not count.

    >>> structure_fingerprint(torch.zeros(2)) == structure_fingerprint(torch.ones(2)) != structure_fingerprint([])
    True
    """
    hasher = _Hasher(None, by_shape=True)
    for place, thing in enumerate(things):
        with hasher.at(f"part {place}"):
            hasher.value(thing)
    return hasher.digest.hexdigest()[:32]


class _Hasher:
    """Writes things into one digest, each with its kind and length before it, so that no two things read alike."""

    def __init__(self, leave_out: Path | None, by_shape: bool = False) -> None:
        self._by_shape = by_shape
        self.digest = hashlib.sha256()
        self._files = FileFacts(leave_out)
        self._where: list[str] = []
        self._open: list[Any] = []  # what is being written: something that refers to itself is written as a step back
        self._done: dict[int, tuple[Any, bytes]] = {}  # the object is kept, or its id could become another one's

    @contextlib.contextmanager
    def at(self, place: str) -> Iterator[None]:
        self._where.append(place)
        try:
            yield
        finally:
            self._where.pop()

    def raw(self, kind: str, content: Any) -> None:
        size = content.nbytes if isinstance(content, memoryview) else len(content)
        self.digest.update(f"{kind}:{size}:".encode())
        self.digest.update(content)

    def text(self, text: str) -> None:
        self.raw("text", text.encode("utf-8", "surrogatepass"))

    def refuse(self, thing: Any, reason: str = "") -> DataError:
        place = ", ".join(self._where)
        kind = f"{type(thing).__module__}.{type(thing).__qualname__}".removeprefix("builtins.")
        return DataError(
            f"the cache cannot tell whether {place} ({kind}{reason}) stays the same from run to run; "
            'pass key="..." with a text that you change when the transform or the data change'
        )

    def value(self, thing: Any) -> None:
        """Anything at all."""
        if type(thing) in PLAIN:
            return self._plain(thing)
        for depth, one in enumerate(reversed(self._open)):
            if one is thing:
                return self.text(f"what was begun {depth} steps ago")
        if type(thing) in CONTAINERS:
            return self._write_nested(thing, self._container)
        known = self._done.get(id(thing))
        if known is None:
            known = self._done[id(thing)] = (thing, self._digest_alone(thing))
        return self.raw("thing", known[1])

    def named(self, thing: Any) -> None:
        """The value of a variable or an attribute: where it is a text it may well name a folder."""
        self.value(thing)
        if isinstance(thing, str):
            self._path(thing, folders=True)

    def _digest_alone(self, thing: Any) -> bytes:
        """The digest of one thing by itself, so that it is hashed once however often it is met."""
        outer, self.digest = self.digest, hashlib.sha256()
        try:
            if type(thing) in PLAIN or type(thing) in CONTAINERS:
                self.value(thing)
            else:
                self._write_nested(thing, self._anything)
            return self.digest.digest()
        finally:
            self.digest = outer

    def _write_nested(self, thing: Any, write: Callable[[Any], None]) -> None:
        self._open.append(thing)
        try:
            write(thing)
        except RecursionError:
            raise self.refuse(thing, ", nested too deeply") from None
        finally:
            self._open.pop()

    def _plain(self, thing: Any) -> None:
        if isinstance(thing, str):
            self.text(thing)
            # A lone word is seldom a folder, and "/" seldom means all files there are.
            self._path(thing, folders=os.sep in thing.strip(os.sep))
        elif isinstance(thing, float):
            self.raw("float", struct.pack("<d", thing))
        else:
            self.raw(type(thing).__name__, (hex(thing) if type(thing) is int else repr(thing)).encode())

    def _anything(self, thing: Any) -> None:
        kind = type(thing)
        if isinstance(thing, Tensor):
            self._tensor(thing)
        elif isinstance(thing, np.ndarray):
            self._array(thing)
        elif kind in (bytes, bytearray):
            self.raw(kind.__name__, thing)
        elif isinstance(thing, PurePath):
            self.text(f"path {thing}")
            self._path(str(thing), folders=True)
        elif isinstance(thing, enum.Enum):
            self.text(f"{kind.__module__}.{kind.__qualname__}.{thing.name}")
            self.value(thing.value)
        elif isinstance(thing, types.CodeType):
            write_code(self, thing)
        elif isinstance(thing, types.ModuleType):
            write_module(self, thing)
        elif isinstance(thing, type):
            write_class(self, thing)
        elif not write_callable(self, thing):
            self._object(thing)

    # --- values

    def _container(self, thing: Any) -> None:
        self.text(f"{type(thing).__name__} of {len(thing)}")
        if isinstance(thing, set | frozenset):
            self.raw("members", b"".join(sorted(self._digest_alone(member) for member in thing)))
        elif isinstance(thing, dict):
            for key, value in thing.items():
                self.value(key)
                with self.at(f"{key!r:.40}"):
                    self.value(value)
        else:
            self._sequence(thing)

    def _sequence(self, thing: Any) -> None:
        if set(map(type, thing)) <= PLAIN - {str}:
            return self.raw("json", json.dumps(thing).encode())  # a million numbers, at the speed of C
        for value in thing:
            self.value(value)
        return None

    def _tensor(self, tensor: Tensor) -> None:
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise self.refuse(tensor, f" of {tensor.layout}")
        self.text(f"tensor {type(tensor).__name__} {tensor.dtype} {tuple(tensor.shape)}")
        if self._by_shape:
            self.text(f"{tensor.stride()} {tensor.requires_grad}")
            if tensor.is_floating_point() or tensor.is_complex():
                return
        self.raw("data", as_bytes(tensor.detach().cpu()).numpy().data)

    def _array(self, values: np.ndarray[Any, Any]) -> None:
        self.text(f"array {type(values).__name__} {values.dtype.str} {values.dtype.names} {values.shape}")
        if isinstance(values, np.memmap) and isinstance(values.base, mmap.mmap) and values.filename is not None:
            self.text(f"from {values.offset}")
            self._path(str(values.filename), folders=False)
        elif values.dtype.hasobject:
            self.value(values.tolist())
        else:
            self.raw("data", np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def _path(self, text: str, folders: bool) -> None:
        """Size and time of the file of that name, if there is one, or of all files in the folder."""
        if self._by_shape:
            return
        try:
            for fact in self._files.of(text, folders):
                self.text(fact)
        except TooManyFiles as error:
            raise self.refuse(text, str(error)) from None

    # --- objects

    def _object(self, thing: Any) -> None:
        kind = type(thing)
        with self.at(f"a {kind.__qualname__}"):
            if kind.__module__.partition(".")[0] == "datasets" and isinstance(
                getattr(thing, "_fingerprint", None), str
            ):
                self.text(f"{kind.__module__}.{kind.__qualname__} {thing._fingerprint} {version_of('datasets')}")
                return
            self.value(kind)
            if takes_itself_apart(kind):
                self._own_attributes(thing)
            reduced = self._reduced(thing)
            if isinstance(reduced, str):
                self.text(reduced)
            else:
                self._parts(reduced)

    def _own_attributes(self, thing: Any) -> None:
        """All that an object holds whose class says itself what copying takes along: it may leave its data out, to
        spare worker processes."""
        if isinstance(thing, list):  # past an __iter__ of its own
            self.value(list(list.__iter__(thing)))
        elif isinstance(thing, tuple):
            self.value(list(tuple.__iter__(thing)))
        elif isinstance(thing, dict):
            self.value(list(dict.items(thing)))
        for name, value in sorted(attributes_of(thing), key=lambda pair: pair[0]):
            with self.at(f"attribute {name}"):
                self.text(name)
                self._attribute(value)

    def _attribute(self, value: Any) -> None:
        """What holds no data (a lock) counts by its type, an open file by its place, size and time."""
        file = getattr(value, "name", None) or getattr(value, "filename", None)
        if isinstance(value, LOCKS):
            self.text("lock")
            return
        try:
            self.named(value)
        except DataError:
            if not isinstance(file, str):
                raise
            self.text(f"open file {file}")
            self._path(file, folders=False)

    def _reduced(self, thing: Any) -> Any:
        """What copying would take it apart into. Nothing is pickled."""
        try:
            reduce = copyreg.dispatch_table.get(type(thing))
            return reduce(thing) if reduce is not None else thing.__reduce_ex__(4)
        except DataError:
            raise
        except Exception as error:
            raise self.refuse(thing) from error

    def _parts(self, reduced: tuple[Any, ...]) -> None:
        make, arguments, state, items, pairs, *_ = (*reduced, None, None, None, None)
        self.value(make)
        self.value(arguments)
        states = state if isinstance(state, tuple) and len(state) == 2 else (state,)
        for part in states:
            if isinstance(part, dict):
                self._attributes(part)
            else:
                self.value(part)
        self.value(None if items is None else list(items))
        self.value(None if pairs is None else list(pairs))

    def _attributes(self, attributes: dict[Any, Any]) -> None:
        for name in sorted(attributes, key=str):
            if self._by_shape and name in OF_THIS_PROCESS:
                continue
            with self.at(f"attribute {name}"):
                self.text(str(name))
                self.named(attributes[name])


def takes_itself_apart(kind: type) -> bool:
    """Whether code of the user's, or code about a class of the user's, says what its objects consist of; else that is
    all their attributes, or what an installed package knows about its own."""
    hooks = [copyreg.dispatch_table.get(kind)]
    hooks += [getattr(kind, name, None) for name in ("__reduce_ex__", "__reduce__", "__getstate__")]
    functions = [hook for hook in hooks if isinstance(hook, types.FunctionType)]
    return bool(functions) and (is_own(kind.__module__) or any(is_own(hook.__module__) for hook in functions))
