"""Reading a tensor of the device, which waits for it: noticed where a recorder asks for that."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol

import torch
from torch import Tensor

from brim.replaced import replaced

READS = ("item", "tolist", "cpu", "to", "nonzero", "__bool__", "__float__", "__int__")


class WaitRecorder(Protocol):
    """Who wants to know."""

    is_sampling: bool

    def wait_begins(self) -> Any: ...

    def wait_ends(self, begin: Any, has_waited: bool) -> None: ...


@contextmanager
def watched_reads(recorder: WaitRecorder, device_type: str) -> Iterator[None]:
    """Tell the recorder of every wait of this thread.

    Python's methods are replaced for as long as a run trains, and not for the steps that are looked at: a class that
    is changed again and again is no longer looked up quickly.
    """
    thread = threading.get_ident()
    changes = [(Tensor, name, _watched(getattr(Tensor, name), recorder, device_type, thread)) for name in READS]
    synchronize = _watched(torch.cuda.synchronize, recorder, "", thread)
    with replaced(*changes, (torch.cuda, "synchronize", synchronize)):
        yield


def _watched(original: Callable[..., Any], recorder: WaitRecorder, device_type: str, thread: int) -> Callable[..., Any]:
    """``device_type``: of the tensors that are waited for; empty for a function that waits without one."""

    @wraps(original)
    def call(*arguments: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():  # first of all: what is traced is the method alone, and depends on nothing
            return original(*arguments, **options)
        if not recorder.is_sampling or threading.get_ident() != thread:
            return original(*arguments, **options)
        if device_type and arguments[0].device.type != device_type:
            return original(*arguments, **options)
        begin = recorder.wait_begins()
        if begin is None:
            return original(*arguments, **options)
        result = None
        try:
            result = original(*arguments, **options)
        finally:
            # ``to`` another type, or to another device than the host, waits for nothing.
            stays = original.__name__ == "to" and isinstance(result, Tensor) and result.device.type == device_type
            recorder.wait_ends(begin, has_waited=not stays)
        return result

    return call
