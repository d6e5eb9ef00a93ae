"""What torch says when data and model do not fit together, as one sentence with what to write.

An index out of range stops a GPU for the whole process: then nothing may be given back to it any more.
"""

import functools
import gc
import re
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from torch import Tensor

from brim.engine.mistakes.torch_sentences import SENTENCES
from brim.engine.sandbox.error_origin import is_raised_in_python
from brim.errors import BrimError, ModelError, first_line
from brim.user_line import innermost_line

STOPPED = re.compile(r"device-side assert|illegal memory access|unspecified launch failure|misaligned address")
P = ParamSpec("P")
R = TypeVar("R")
DTYPES = {
    "double": "float64", "float": "float32", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32",
    "byte": "uint8", "unsigned char": "uint8", "char": "int8", "short": "int16", "bool": "bool",
    "cfloat": "complex64", "complexfloat": "complex64", "cdouble": "complex128", "complexdouble": "complex128",
}  # fmt: skip


def explained_errors(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, with torch's words for data and model that do not fit together as a :class:`ModelError`."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (RuntimeError, TypeError, IndexError, ValueError, AttributeError, AssertionError) as error:
            sentence = None if isinstance(error, BrimError) or is_raised_in_python(error) else explanation(str(error))
            if sentence is None:
                raise
            if is_lost(str(error)):
                keep_tensors()
            line = innermost_line(error.__traceback__)
            raise ModelError(f"{sentence} (torch says{line and f' at {line}'}: {first_line(error)})") from error

    return call


def explanation(said: str) -> str | None:
    """The sentence for what torch says, if there is one.

    >>> explanation("Found dtype Long but expected Float")
    'the targets are int64, and this loss takes float32: hand over y.float()'
    """
    for pattern, sentence in SENTENCES:
        if (found := re.search(pattern, said)) is not None:
            names = [DTYPES.get(group.lower(), group) for group in found.groups()]
            casts = [f"{_cast(name)}" for name in reversed(names)]
            return sentence.format(*names, *casts)
    return None


def _cast(dtype: str) -> str:
    """The method that makes a tensor of it."""
    short = {name: key for key, name in DTYPES.items() if hasattr(Tensor, key)}  # "unsigned char" is no method
    return f"{short[dtype]}()" if dtype in short else dtype


def is_lost(said: str) -> bool:
    """Whether torch says that this process can use its GPU no more.

    >>> is_lost("CUDA error: device-side assert triggered"), is_lost("CUDA out of memory. Tried to allocate 2 GiB")
    (True, False)
    """
    return STOPPED.search(said) is not None


def keep_tensors() -> None:
    """Let no tensor be freed any more that is there now.

    Page-locked memory that the device has read from, and memory of the device that two streams have used, is given back
    by asking the device, in a destructor: that ends the process with a page of C++ after the sentence that tells what
    is wrong. Which tensors these are cannot be asked any more either, so all stay: in the frame of a thread that never
    ends, since modules and atexit's functions are cleared before the process is over.
    """
    kept = [thing for thing in gc.get_objects() if issubclass(type(thing), Tensor)]  # objects may answer isinstance
    threading.Thread(target=_hold, args=(kept,), name="brim-kept-tensors", daemon=True).start()


def _hold(kept: list[Tensor]) -> None:
    threading.Event().wait()
    del kept
