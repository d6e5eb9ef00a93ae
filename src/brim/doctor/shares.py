"""The five shares of a step's time, which add up to all of it.

A step lasts from the end of one call of the optimizer's ``step`` to the end of the next, with everything that happens
between: an evaluation or a checkpoint that falls into the measured steps is part of them.

=======  ================================================  =================================================
share    on a GPU                                          on a CPU
=======  ================================================  =================================================
data     it is idle, and the host waits for a batch        the main thread waits for a batch or makes it: in
         or makes it                                       ``next`` of a DataLoader, in the head of the loop over
                                                           batches, or on lines whose result goes into the model
copy     a copy to it runs and no kernel does              none
compute  a kernel runs                                     inside operators, without what calling them costs
sync     it is idle while the host waits for it            waiting for another device: none
         (``.item()``, ``.cpu()``), and until it has
         work again
launch   it is idle otherwise: the host is in Python,      Python and the calls of operators: the loop itself,
         or calls operators                                metrics, logging, progress bars
=======  ================================================  =================================================

The time of a step comes from steps without a profiler. Compute, copy and idle time come from ten to a hundred steps
with one, and launch is what is left of the step without one: a profiler makes the host slower, not the device.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brim.doctor.observation import Observation


@dataclass(frozen=True)
class Shares:
    """Parts of a step's time, which add up to 1."""

    data: float
    copy: float
    compute: float
    sync: float
    launch: float

    def as_dict(self) -> dict[str, float]:
        return {"data": self.data, "copy": self.copy, "compute": self.compute, "sync": self.sync, "launch": self.launch}


def shares(seen: "Observation") -> Shares | None:
    """The shares of what was seen; None where too little was."""
    window = seen.timed
    if window is None or window.seconds <= 0:
        return None
    if seen.host.device == "cuda" and seen.profile is not None:
        return _on_gpu(seen, window.step)
    return _on_cpu(seen, window.step)


def data_outside_loaders(seen: "Observation") -> float:
    """The share of time in which the script makes batches itself, without a DataLoader, by sampling."""
    return sum(line.share for line in seen.lines if line.kind == "data")


def _on_cpu(seen: "Observation", step: float) -> Shares:
    assert seen.timed is not None
    own = data_outside_loaders(seen)
    data = min(1.0, seen.timed.data / seen.timed.seconds + own)
    compute = _cpu_compute(seen, own, data)
    return Shares(data, 0.0, compute, 0.0, 1.0 - data - compute)


def _cpu_compute(seen: "Observation", own_data: float, data: float) -> float:
    """The share inside operators. Those that make batches are among the data.

    Its part of the steps under the profiler, without their waiting for a loader, is taken for its part of all steps:
    small operators take longer there, as everything does, and the machine may have been busier or less busy.
    """
    profile, window = seen.profile, seen.timed
    if profile is None or window is None or profile.step <= profile.data:
        kinds = {"forward", "backward", "optimizer", "evaluation"}
        return min(1.0 - data, sum(line.share for line in seen.lines if line.kind in kinds))
    outside = 1.0 - window.data / window.seconds
    part, ahead = (seconds / (profile.step - profile.data) for seconds in (profile.compute, profile.before_forward))
    return min(1.0 - data, max(0.0, outside * part - min(own_data, outside * ahead)))


def _on_gpu(seen: "Observation", step: float) -> Shares:
    profile = seen.profile
    assert profile is not None
    parts = [profile.data, profile.copy, profile.compute, profile.sync]
    known = sum(parts)
    # What was counted is more than a step without the profiler takes: it slowed down waiting too.
    scale = min(1.0, step / known) if known else 1.0
    data, copy, compute, sync = (part * scale / step for part in parts)
    launch = max(0.0, 1.0 - data - copy - compute - sync)
    # Batches that the script makes without a loader have no mark in the trace. Meanwhile nothing is launched.
    own = min(launch, data_outside_loaders(seen))
    return Shares(data + own, copy, compute, sync, launch - own)
