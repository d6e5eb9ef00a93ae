"""Code that the user has compiled, run as plain Python for a while."""

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import nn

_CHANGING = threading.Lock()


def uncompiled() -> AbstractContextManager[None]:
    """Within, functions and modules of ``torch.compile`` run eagerly in this thread.

    It belongs around every dispatch mode that sees users' code: under one the compiler does not only leave out the
    call, it marks the code, which then stays eager for good.
    """
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and importing it takes seconds
        return nullcontext()
    return compiler_stance("force_eager")


@contextmanager
def compiler_stance(stance: str) -> Iterator[None]:
    """What ``torch.compiler.set_stance(stance)`` does, in this thread alone and in those in which autograd works.

    torch has one stance for all threads, and whoever leaves puts back what was there when it came: of two threads that
    overlap, the second would put back the first one's for good.
    """
    # By its package, which waits where another thread is importing that just now.
    frames: Any = importlib.import_module("torch._dynamo").eval_frame
    own = frames.DynamoStance(stance)
    with _CHANGING:
        if not isinstance(frames._stance, _Stances):
            frames._stance = _Stances(frames._stance)
        stances: _Stances = frames._stance
        stances.held.append(own)
    before, stances.here.stance = stances.of_this_thread, own
    try:
        yield
    finally:
        stances.here.stance = before
        with _CHANGING:
            stances.held.remove(own)
            if not stances.held and frames._stance is stances:
                frames._stance = stances.usual


class _Stances:
    """Stands where torch looks for its stance: that of this thread if it has one here, else the ``usual`` one.

    Whoever found it there may put it back when all have left; then it is the usual one.
    """

    def __init__(self, usual: Any) -> None:
        self.usual = usual
        self.held: list[Any] = []
        self.here = threading.local()

    @property
    def of_this_thread(self) -> Any:
        return getattr(self.here, "stance", None)

    def __getattr__(self, name: str) -> Any:
        now = self.of_this_thread
        if now is None and self.held and isinstance(threading.current_thread(), threading._DummyThread):
            now = self.held[-1]  # no thread of Python's: autograd computes checkpointed code again in those
        return getattr(now or self.usual, name)


def module_within(module: nn.Module) -> nn.Module:
    """What ``torch.compile(module)`` has wrapped; the module itself where it is no such wrapper.

    Asked of what is registered, since a model may answer to any name that it is asked for.

    >>> module_within(nn.ReLU())
    ReLU()
    """
    return dict(module._modules).get("_orig_mod") or module
