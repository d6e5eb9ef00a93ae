"""The bytes of a field of a sample, and the value they stand for: the last extension of the field's name decides."""

import ast
import io
import json
import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brim.errors import DataError, a_type

Decoder = Callable[[memoryview], Any]

NPY_MAGIC = b"\x93NUMPY"
MOST_HEADER = 10_000  # as numpy's own limit: literal_eval of a long text can exhaust the stack
IMAGES = ("jpg", "jpeg", "png", "ppm", "webp")
PICKLES = ("pyd", "pickle", "pkl")
# What torch has a type for. Anything else in a .npy (objects, text, records) is refused.
NPY_TYPES = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"}


def extension(field: str) -> str:
    """What decides how a field is read.

    >>> extension("left.PNG")
    'png'
    """
    return field.rpartition(".")[2].lower()


def decoder_of(field: str, allow_pickle: bool = False) -> Decoder:
    """The function that turns a field's bytes into its value; bytes stay bytes where the extension is not known.

    >>> decoder_of("cls")(memoryview(b"7"))
    7
    """
    kind = extension(field)
    if kind in PICKLES and not allow_pickle:
        raise DataError(
            f"the field {field!r} is a pickle, which can run any code when it is read; leave it out with fields=[...], "
            "or set allow_pickle=True if you trust whoever wrote it"
        )
    return DECODERS.get(kind, bytes)


def decode_text(content: memoryview) -> str:
    return str(content, "utf-8")


def decode_json(content: memoryview) -> Any:
    return json.loads(bytes(content))


def decode_int(content: memoryview) -> int:
    return int(bytes(content))


def decode_float(content: memoryview) -> float:
    return float(bytes(content))


def decode_npy(content: memoryview) -> Tensor:
    """A tensor on the bytes themselves, where their order allows it; nothing is unpickled and every size is checked."""
    if content[:6] != NPY_MAGIC or len(content) < 12:
        raise ValueError("it does not start as a .npy does")
    wide = content[6] > 1  # version 1 writes the header's length in 2 bytes, later ones in 4
    start = 12 if wide else 10
    end = start + int.from_bytes(content[8:start], "little")
    if end - start > MOST_HEADER:
        raise ValueError(f"its header claims {end - start} bytes")
    dtype, shape, fortran, count = _npy_header(bytes(content[start:end]))
    if count * dtype.itemsize != len(content) - end:
        raise ValueError(f"its shape {shape} takes {count * dtype.itemsize} bytes, and {len(content) - end} are there")
    if count == 0:
        return torch.from_numpy(np.empty(shape, dtype.newbyteorder("=")))
    array: np.ndarray[Any, Any] = np.frombuffer(content, dtype, count, end)
    if not dtype.isnative or not array.flags.aligned:
        array = array.astype(dtype.newbyteorder("="))
    return torch.from_numpy(array.reshape(shape, order="F") if fortran else array.reshape(shape))


@lru_cache(
    maxsize=1024
)  # the arrays of a data set mostly share a few headers, and literal_eval takes longer than reading
def _npy_header(text: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    header = ast.literal_eval(text.decode("latin-1"))
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise ValueError("its header is not that of a .npy")
    descr, shape = header["descr"], header["shape"]
    if not isinstance(descr, str) or descr.lstrip("<>|=") not in NPY_TYPES:
        raise ValueError(f"it holds values of type {str(descr)[:60]}, which no tensor has")
    if not isinstance(shape, tuple) or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError("its shape is not a tuple of lengths")
    count = 1
    for length in shape:  # Python's integers, which do not wrap around
        count *= length
    return np.dtype(descr), shape, header["fortran_order"] is True, count


def decode_torch(content: memoryview) -> Any:
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def decode_safetensors(content: memoryview) -> dict[str, Tensor]:
    from safetensors.torch import load

    tensors: dict[str, Tensor] = load(bytes(content))
    return tensors


def decode_image(content: memoryview) -> Tensor:
    """Always three channels, so that a data set with a few grey pictures still makes batches."""
    with open_picture(content) as picture:
        pixels = np.array(in_mode(picture, "RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def open_picture(content: memoryview) -> Any:
    """The picture that these bytes hold, as one of Pillow's, whose pixels are not decoded yet."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DataError(
            "pictures are decoded with Pillow, which is not installed; run pip install 'brim[images]'"
        ) from None
    try:
        return Image.open(io.BytesIO(content))
    except UnidentifiedImageError:  # its own words name an object in memory
        raise UnidentifiedImageError("it begins as no kind of picture that Pillow knows") from None


def in_mode(picture: Any, mode: str) -> Any:
    """A picture of Pillow's with the channels of ``mode``, 8 bits each: ``"RGB"`` or ``"L"`` (grey)."""
    if picture.mode == mode:
        return picture  # convert would copy it
    if picture.mode.startswith("I"):  # 16 bits grey, of which convert would make 255 wherever there is more than that
        from PIL import Image

        picture = Image.fromarray((np.asarray(picture).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
    return picture.convert(mode)


def decode_pickle(content: memoryview) -> Any:
    return pickle.loads(content)


DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(("txt", "text"), decode_text),
    "json": decode_json,
    **dict.fromkeys(("cls", "index", "id", "int"), decode_int),
    "float": decode_float,
    "npy": decode_npy,
    **dict.fromkeys(("pt", "pth"), decode_torch),
    "safetensors": decode_safetensors,
    **dict.fromkeys(IMAGES, decode_image),
    **dict.fromkeys(PICKLES, decode_pickle),
}


def encode(field: str, value: Any) -> tuple[str, bytes]:
    """The field's name in a shard, which says what it holds, and its bytes. A name that says so already is kept.

    >>> encode("label", 7)
    ('label.cls', b'7')
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return field.lower(), bytes(value)  # bytes can be anything, so their name is believed
    suffixes, content = _as_json(value) if extension(field) == "json" else _written(value)
    return (field if extension(field) in suffixes else f"{field}.{suffixes[0]}").lower(), content


def _written(value: Any) -> tuple[tuple[str, ...], bytes]:
    """The extensions that a value can have, the usual one first, and its bytes."""
    if isinstance(value, str):
        return ("txt", "text"), value.encode()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):  # bool too
        return ("cls", "index", "id", "int", "float"), str(int(value)).encode()
    if isinstance(value, float):
        return ("float",), repr(value).encode()
    if isinstance(value, Tensor | np.ndarray):
        return _written_array(value)
    if type(value).__module__.startswith("PIL."):
        picture = io.BytesIO()
        value.save(picture, format="png")
        return ("png",), picture.getvalue()
    if isinstance(value, dict | list | tuple) or value is None:
        return _as_json(value)
    raise DataError(
        f"{a_type(value)} cannot be written into a shard; let the sample hold tensors, numbers, texts, bytes, "
        "or dicts and lists of those that JSON knows"
    )


def _as_json(value: Any) -> tuple[tuple[str, ...], bytes]:
    try:
        return ("json",), json.dumps(value, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise DataError(f"{a_type(value)} in a sample cannot be written as JSON: {error}") from error


def _written_array(value: Tensor | np.ndarray[Any, Any]) -> tuple[tuple[str, ...], bytes]:
    content = io.BytesIO()
    if isinstance(value, Tensor):
        value = value.detach().cpu().resolve_conj().resolve_neg()
        if value.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):  # numpy has no such types
            torch.save(value.clone(), content)  # a clone: a view would be saved with all that it is a view of
            return ("pt", "pth"), content.getvalue()
        value = value.numpy()
    if value.dtype.str.lstrip("<>|=") not in NPY_TYPES:
        raise DataError(f"an array of type {value.dtype} cannot be written into a shard; make it one of numbers")
    np.lib.format.write_array(content, value, allow_pickle=False)
    return ("npy",), content.getvalue()
