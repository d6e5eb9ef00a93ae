"""Streams, events and marks of a profiler in model code: in a forecast there is one order of things, and no clock."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from brim.memory.as_cuda.devices import GPU, is_asked_by_job
from brim.replaced import replaced


class _Idle:
    """A stream or an event: everything was done already."""

    device = GPU
    priority = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._done

    def _done(self, *_: Any, **__: Any) -> None:
        return None

    def record_event(self, event: Any = None) -> Any:
        return event or _Idle()

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return 0.0

    def __enter__(self) -> "_Idle":
        return self

    def __exit__(self, *_: Any) -> None:
        return None


def streams_are_idle() -> AbstractContextManager[None]:
    """What the user's code asks of ``torch.cuda`` to order its work is answered as if all of it were done."""
    answers: dict[Any, dict[str, Callable[..., Any]]] = {
        torch.cuda: {
            "current_stream": _Idle, "default_stream": _Idle, "stream": nullcontext, "device": nullcontext,
            "set_device": _nothing, "set_stream": _nothing, "reset_peak_memory_stats": _nothing,
        },
        torch.cuda.nvtx: {"range_push": _nothing, "range_pop": _nothing, "mark": _nothing, "range": nullcontext},
    }  # fmt: skip
    asked = [
        (room, name, _for_the_job(getattr(room, name), made))
        for room, some in answers.items()
        for name, made in some.items()
    ]
    classes = [(torch.cuda, name, _class_for_the_job(getattr(torch.cuda, name))) for name in ("Stream", "Event")]
    return replaced(*asked, *classes, (FakeTensor, "record_stream", _nothing))


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _for_the_job(own: Callable[..., Any], made: Callable[..., Any]) -> Callable[..., Any]:
    def asked(*args: Any, **kwargs: Any) -> Any:
        return made() if is_asked_by_job(sys._getframe(1)) else own(*args, **kwargs)

    return asked


def _class_for_the_job(own: Any) -> Any:
    """A class like torch's own, which the user's code gets something idle of."""

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return _Idle() if is_asked_by_job(sys._getframe(1)) else own.__new__(cls, *args, **kwargs)

    return type(own.__name__, (own,), {"__new__": new})
