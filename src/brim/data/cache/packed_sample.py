"""A sample of any nesting as plain bytes: its layout (which containers, which types) and the bytes of its leaves.

No pickle: a layout is JSON, and a leaf is a number, a text or the raw content of a tensor. What does not fit that is
refused by its type, so nothing comes back as something else than it was.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brim.errors import DataError

NUMBERS = ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "float32", "float64")
NUMPY_DTYPES = frozenset(("bool", *NUMBERS, "complex64", "complex128"))
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
TORCH_DTYPES = {name: getattr(torch, name) for name in (*sorted(NUMPY_DTYPES), "bfloat16", *FLOAT8)}
DTYPE_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}
SCALARS: dict[type, tuple[str, str]] = {int: ("int", "int64"), float: ("float", "float64"), bool: ("bool", "bool")}
ROUNDING = 1e-5  # norm-relative: another processor, or another library beneath, adds up in another order
CHANGE = "; let the transform return tensors, arrays, numbers, texts, bytes or None in tuples, lists, dicts"


@dataclass(frozen=True)
class Leaf:
    """What a leaf is: ``kind`` is its Python type, ``dtype`` that of its bytes, ``dims`` its number of dimensions."""

    kind: str
    dtype: str
    dims: int

    @property
    def stacks(self) -> bool:
        """Whether torch's default collate makes a tensor of such leaves."""
        return self.kind not in ("none", "str", "bytes", "bigint", "json")

    @property
    def itemsize(self) -> int:
        return int(TORCH_DTYPES[self.dtype].itemsize)


@dataclass(frozen=True)
class PackedSample:
    """One sample: ``layout`` is canonical JSON; ``values`` and ``shapes`` belong to its leaves, in order."""

    layout: str
    values: list[bytes]
    shapes: list[tuple[int, ...]]

    @property
    def bytes(self) -> int:
        """About what it takes on disk: what is in it, and where it starts."""
        return sum(map(len, self.values)) + 8 * sum(map(len, self.shapes))


def pack(sample: Any, index: int) -> PackedSample:
    """The bytes of ``sample``; ``index`` is for the sentence about what cannot be stored.

    >>> packed = pack((torch.zeros(2), "text"), 0)
    >>> packed.shapes, packed.values[1]
    ([(2,), (4,)], b'text')
    """
    packed = PackedSample("", [], [])
    try:
        layout = _pack(sample, packed)
    except _Unstorable as refused:
        raise DataError(f"sample {index} holds {refused}, which the cache cannot store{CHANGE}") from None
    except RecursionError:
        raise DataError(f"sample {index} holds itself or is nested too deeply, so the cache cannot store it") from None
    return PackedSample(json.dumps(layout, separators=(",", ":")), packed.values, packed.shapes)


def same_sample(left: PackedSample, right: PackedSample, rounding: float = ROUNDING) -> bool:
    """Whether two samples are the same; floats up to ``rounding``, or to the last bits of their type if coarser."""
    if left.layout != right.layout or left.shapes != right.shapes:
        return False
    leaves = layout_leaves(json.loads(left.layout))
    pairs = zip(leaves, left.values, right.values, strict=True)
    return all(_is_within_rounding(leaf, one, other, rounding) for leaf, one, other in pairs)


def layout_leaves(layout: Any) -> list[Leaf]:
    """The leaves of a layout, in order. Whatever is not a layout raises ValueError, KeyError or TypeError."""
    if "leaf" in layout:
        leaf = Leaf(str(layout["leaf"]), str(layout["dtype"]), int(layout["dims"]))
        if leaf.dtype not in TORCH_DTYPES or not 0 <= leaf.dims <= 64:
            raise ValueError(f"no such leaf: {leaf}")
        return [leaf]
    return [leaf for child in children_of(layout) for leaf in layout_leaves(child)]


def children_of(layout: Any) -> list[Any]:
    """The layouts inside a container's."""
    for container in ("tuple", "list", "named", "dict"):
        if container in layout:
            return list(layout[container])
    raise ValueError(f"not a layout: {layout!r:.80}")


class _Unstorable(Exception):
    pass


def _pack(part: Any, packed: PackedSample) -> Any:
    """The layout of ``part``; the bytes of its leaves are appended to ``packed``."""
    kind = type(part)
    if kind is dict:
        unusable = [key for key in part if type(key) not in (str, int)]
        if unusable:
            raise _Unstorable(f"a dict with a key of type {type(unusable[0]).__name__}")
        return {"dict": [_pack(value, packed) for value in part.values()], "keys": list(part)}
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        name = f"{kind.__module__}:{kind.__qualname__}"
        return {"named": [_pack(value, packed) for value in part], "class": name, "fields": list(kind._fields)}
    if kind in (list, tuple):
        return _pack_sequence(part, kind.__name__, packed)
    leaf, shape, value = _pack_leaf(part)
    return _add(packed, leaf, shape, value)


def _add(packed: PackedSample, leaf: Leaf, shape: tuple[int, ...], value: bytes) -> Any:
    packed.values.append(value)
    packed.shapes.append(shape)
    return {"leaf": leaf.kind, "dtype": leaf.dtype, "dims": leaf.dims}


def _pack_sequence(part: Any, container: str, packed: PackedSample) -> Any:
    """Numbers of one type are one leaf, whatever their number: token ids would else be one leaf each."""
    inside = {type(value) for value in part}
    only = inside.pop() if len(inside) == 1 else None
    if only in SCALARS and (only is not int or all(_is_int64(value) for value in part)):
        name, dtype = SCALARS[only]
        value = np.array(part, dtype=dtype).tobytes()
        return _add(packed, Leaf(f"{container} of {name}", dtype, 1), (len(part),), value)
    if container == "list" and only in (str, list, dict) and _is_plain(part):
        text = json.dumps(part).encode()
        return _add(packed, Leaf("json", "uint8", 1), (len(text),), text)
    return {container: [_pack(value, packed) for value in part]}


def _pack_leaf(part: Any) -> tuple[Leaf, tuple[int, ...], bytes]:
    kind = type(part)
    if kind is Tensor:
        return _pack_tensor(part)
    if kind is np.ndarray or isinstance(part, np.generic):
        if part.dtype.name not in NUMPY_DTYPES or not part.dtype.isnative:
            raise _Unstorable(f"a numpy {kind.__name__} of {part.dtype!r}")
        name = "array" if kind is np.ndarray else "scalar"
        return Leaf(name, part.dtype.name, part.ndim), part.shape, part.tobytes()
    if kind in SCALARS and (kind is not int or _is_int64(part)):
        return Leaf(*SCALARS[kind], 0), (), np.array(part, dtype=SCALARS[kind][1]).tobytes()
    if part is None:
        return Leaf("none", "uint8", 0), (), b""
    if kind is int:
        text, name = hex(part).encode(), "bigint"
    elif kind is str:
        text, name = part.encode("utf-8", "surrogatepass"), "str"
    elif kind is bytes:
        text, name = part, "bytes"
    else:
        raise _Unstorable(f"a {kind.__module__}.{kind.__qualname__}".replace("builtins.", ""))
    return Leaf(name, "uint8", 1), (len(text),), text


def _pack_tensor(part: Tensor) -> tuple[Leaf, tuple[int, ...], bytes]:
    if part.device.type != "cpu" or part.layout is not torch.strided or part.dtype not in DTYPE_NAMES:
        layout = str(part.layout).removeprefix("torch.")
        raise _Unstorable(f"a {layout} tensor of {part.dtype} on {part.device}")
    if part.requires_grad:
        raise _Unstorable("a tensor that requires a gradient")
    shape = tuple(part.shape)
    return Leaf("tensor", DTYPE_NAMES[part.dtype], len(shape)), shape, as_bytes(part).numpy().tobytes()


def as_bytes(tensor: Tensor) -> Tensor:
    """The content of a tensor on the CPU as flat uint8, a view where it is contiguous."""
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    # Strided by hand: a tensor of one number counts as contiguous whatever its stride is, and then has no view.
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)


def _is_int64(number: int) -> bool:
    return -(1 << 63) <= number < 1 << 63


def _is_plain(part: Any) -> bool:
    """Whether JSON gives back exactly this."""
    kind = type(part)
    if kind is list:
        return all(_is_plain(value) for value in part)
    if kind is dict:
        return all(type(key) is str and _is_plain(value) for key, value in part.items())
    return part is None or kind in (str, bool) or (kind is int and _is_int64(part)) or (kind is float and part == part)


def _is_within_rounding(leaf: Leaf, left: bytes, right: bytes, rounding: float) -> bool:
    dtype = TORCH_DTYPES[leaf.dtype]
    if left == right or not (dtype.is_floating_point or dtype.is_complex):
        return left == right
    wide = torch.complex128 if dtype.is_complex else torch.float64
    first, second = (torch.frombuffer(bytearray(value), dtype=dtype).to(wide) for value in (left, right))
    usual = first.isfinite() & second.isfinite()
    if not torch.allclose(first[~usual], second[~usual], rtol=0, atol=0, equal_nan=True):
        return False
    allowed = max(rounding, 2 * torch.finfo(dtype).eps) * float(first[usual].abs().square().sum().sqrt())
    distance = float((first - second)[usual].abs().square().sum().sqrt())
    return math.isfinite(distance) and distance <= allowed
