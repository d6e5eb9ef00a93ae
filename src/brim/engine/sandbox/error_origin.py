"""Whose error an exception is: torch's, an exchange's, or that of somebody's Python code.

What an error says tells little: users write "cannot process label 7" and quote "CUDA out of memory". What tells is its
type, where it arose, and whether a ``raise`` statement or native code raised it.
"""

import dis
import traceback
from types import TracebackType

import torch.distributed as dist

from brim.errors import RanksLost
from brim.user_line import BRIM, TORCH, is_foreign

# Where ranks exchange something: a RuntimeError from within is how a lost connection is felt.
EXCHANGES = (
    f"{TORCH}distributed/",
    *(f"{BRIM}engine/distributed/{name}.py" for name in ("ranks", "gradient_exchange", "overlap", "process_group")),
)
NATIVE_WORDS = ("gloo", "nccl")  # in what native code says of an exchange


def is_raised_in_python(error: BaseException) -> bool:
    """Whether a ``raise`` outside torch and brim has raised it; native code says what it likes.

    >>> try:
    ...     raise RuntimeError("CUDA error")
    ... except RuntimeError as error:
    ...     is_raised_in_python(error)
    True
    """
    last = _innermost(error)
    if last is None:
        return False
    operation = dis.opname[last.tb_frame.f_code.co_code[last.tb_lasti]]
    return operation in ("RAISE_VARARGS", "RERAISE") and is_foreign(last.tb_frame.f_code.co_filename)


def is_of_exchange(error: BaseException) -> bool:
    """Whether it is how an exchange between ranks has failed: by its type, or because it arose within one."""
    if isinstance(error, dist.DistError | RanksLost):
        return True
    if not isinstance(error, RuntimeError | ValueError):
        return False
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    within: list[str] = []  # behind the last line of anybody's code
    for file in reversed(files):
        if is_foreign(file):
            break
        within.append(file)
    if any(file.startswith(EXCHANGES) for file in within):
        return True
    last = _innermost(error)
    is_native = last is not None and "RAISE" not in dis.opname[last.tb_frame.f_code.co_code[last.tb_lasti]]
    return is_native and any(word in str(error).lower() for word in NATIVE_WORDS)


def _innermost(error: BaseException) -> TracebackType | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace
