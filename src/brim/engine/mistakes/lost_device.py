"""A GPU that an error has stopped for the whole process: an index out of range, for one."""

import gc
import re
import threading

from torch import Tensor

STOPPED = re.compile(r"device-side assert|illegal memory access|unspecified launch failure|misaligned address")


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
