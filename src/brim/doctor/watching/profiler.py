"""Some steps under torch's profiler, reduced to numbers at once."""

from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from brim.doctor.observation import Profile
from brim.doctor.trace.events import END, FLOOR, FORWARD, STEP, read_events
from brim.doctor.trace.reduce import reduce_events

EMPTY_OPERATORS = 60


class Profiler:
    """Profiles the steps between ``start`` and ``stop``."""

    def __init__(self, file: Path) -> None:
        self.file = file
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
        self._profile = profile(activities=activities)
        self._forward: Any = None
        self._is_marked = False  # the first call of a module in this step
        self._others = 0  # profilers that the script has made

    def install(self) -> None:
        """Notice other profilers: two at once crash."""
        kineto = torch.autograd.profiler.profile
        make = kineto.__init__

        def made(profiler: Any, *arguments: Any, **options: Any) -> None:
            self._others += 1
            make(profiler, *arguments, **options)

        kineto.__init__ = made  # type: ignore[method-assign, assignment]

    def begin_window(self) -> None:
        """From here on, profilers count."""
        self._others = 0

    @property
    def has_other(self) -> bool:
        """Whether the script profiles itself."""
        return self._others > 0 or torch._C._autograd._profiler_enabled()

    def start(self) -> None:
        self._profile.start()
        one = torch.ones(1)
        with torch.no_grad(), record_function(FLOOR):
            for _ in range(EMPTY_OPERATORS):
                torch.add(one, one)
        self._forward = torch.nn.modules.module.register_module_forward_pre_hook(self._mark_forward)
        self.mark_step()

    def mark_step(self) -> None:
        self._is_marked = False
        with record_function(STEP):
            pass

    def stop(self) -> Profile | None:
        """What the steps were made of; None where the profiler saw none. The device has to be done with them."""
        self._forward.remove()
        with record_function(END):
            pass
        self._profile.stop()
        self._profile.export_chrome_trace(str(self.file))
        return reduce_events(read_events(self.file))

    def _mark_forward(self, *_: object) -> None:
        if not self._is_marked:
            self._is_marked = True
            with record_function(FORWARD):
                pass
