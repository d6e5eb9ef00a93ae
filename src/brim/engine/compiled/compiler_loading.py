"""Loading the compiler beside eager steps: a step that compiles would else wait for its modules and its processes."""

import os
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import Any

import torch

INDUCTOR = "torch._inductor.compile_fx"
# Those that it imports only when it compiles, and that take long.
MODULES = (INDUCTOR, "torch.utils.cpp_extension", "sympy.physics.units", "sympy.tensor.tensor")
OF_CUDA = ("torch._inductor.codegen.cuda_combined_scheduling", "torch._inductor.codegen.triton")
MOST_SECONDS = 30.0  # that compiling waits for all this, while eager steps go on


class CompilerLoading:
    """Imports Inductor in a thread, starts the processes in which it compiles kernels, and looks up what it asks first.

    Until the processes are up, torch compiles one kernel after the other in this process, and it starts them only when
    there is something to compile.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._thread: threading.Thread | None = None
        self._imported = threading.Event()
        self._began = 0.0
        self._workers: Any = None  # a future, done when they are up

    def begin(self) -> None:
        """Begin, the first time that this is called."""
        if self._thread is not None:
            return
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._load, name="brim-compiler")
        if INDUCTOR not in sys.modules and hasattr(os, "register_at_fork"):
            with suppress(ImportError):  # registers something around forks too: in the midst of one, it would do half
                import filelock  # noqa: F401
            os.register_at_fork(before=self._finish_before_fork)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether a step that compiles has nothing to wait for, or all this takes too long."""
        if self._thread is None:
            return False
        is_up = not self._thread.is_alive() and (self._workers is None or self._workers.done())
        return is_up or time.monotonic() - self._began > MOST_SECONDS

    def _load(self) -> None:
        try:
            with suppress(Exception):  # what fails here fails where it is needed, and is told there
                for name in MODULES + (OF_CUDA if self.device.type == "cuda" else ()):
                    import_module(name)
        finally:
            self._imported.set()
        with suppress(Exception):
            if self.device.type == "cuda":
                self._workers = started_workers()
            look_up(self.device)

    def _finish_before_fork(self) -> None:
        """A module that is half loaded would stay so in the child, and whoever imports it there would wait for ever."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._imported.wait()


def look_up(device: torch.device) -> None:
    """Have Inductor find out what it does once in each process, which takes a second, and several on a CPU.

    A hash of torch's source; one of Triton, with its library; which instructions the C++ compiler here understands, by
    compiling test programs.
    """
    from torch._inductor import codecache, cpu_vec_isa

    codecache.torch_key()
    if device.type == "cuda":
        with torch.cuda.device(device):
            codecache.CacheBase.get_system()
    else:
        cpu_vec_isa.pick_vec_isa()


def started_workers() -> Any:
    """A future that is done when Inductor's processes are up; None where it has none."""
    from torch._inductor.async_compile import AsyncCompile
    from torch.utils._triton import has_triton_package

    if os.environ.get("TORCH_WARM_POOL", "1") != "1" or not has_triton_package():
        return None
    AsyncCompile.warm_pool()
    AsyncCompile.wakeup()
    return AsyncCompile._ready_future
