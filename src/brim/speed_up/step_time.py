"""How long a step takes on one GPU: a rough forecast, from what there is to compute and what the card could do.

The host launches kernels and the GPU runs them, each at its own pace, so a step takes as long as the slower of the two.
On the GPU an operator takes as long as its operations or its bytes, whichever takes longer (the "roofline"), and never
less than the shortest kernel. The factors are plain ones, the same for every card: chosen so that five steps measured
on one H200 and its host come out within a factor of two (docs/speed-up.md shows them). A fast desktop launches in half
of the time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from brim.hardware.peaks import Peak
from brim.speed_up.work import FULL, TF32, Operator, Work

COMPUTE_SHARE = 0.5  # of the peak, that products reach
RECURRENT_SHARE = 0.2
MEMORY_SHARE = 0.75
SHORTEST_KERNEL = 3e-6
LAUNCH = 20e-6  # the host's time for one operator, with Python, autograd and autocast
VIEW = 6e-6  # for one that launches nothing
NEARLY = 0.9  # of the time of the other
CELL_LAUNCH = 8e-6  # for a kernel that cuDNN launches from within


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step on one GPU: the host's by phase, the GPU's in forward and backward and in the optimizer."""

    host_forward: float
    host_backward: float
    host_optimizer: float
    gpu_passes: float
    gpu_optimizer: float

    @property
    def host(self) -> float:
        return self.host_forward + self.host_backward + self.host_optimizer

    @property
    def gpu(self) -> float:
        return self.gpu_passes + self.gpu_optimizer

    @property
    def seconds(self) -> float:
        """Host and GPU work at the same time: the slower one decides."""
        return max(self.host, self.gpu)

    @property
    def is_launch_bound(self) -> bool:
        """Whether the host decides. A measured GPU waits for its host, so that its own time is a little longer."""
        return self.host > NEARLY * self.gpu

    def times(self, passes: int) -> "StepTime":
        """The step with so many forward and backward passes in it."""
        return replace(
            self, host_forward=passes * self.host_forward, host_backward=passes * self.host_backward,
            gpu_passes=passes * self.gpu_passes,
        )  # fmt: skip

    def scaled(self, host: float, gpu: float) -> "StepTime":
        """With another pace of the host and of the GPU."""
        return StepTime(
            host * self.host_forward, host * self.host_backward, host * self.host_optimizer, gpu * self.gpu_passes,
            gpu * self.gpu_optimizer,
        )  # fmt: skip


def step_time(work: Work, peak: Peak) -> StepTime:
    """The forecast for one pass and one step of the optimizer."""
    forward, backward, optimizer = (work.operators[phase] for phase in ("forward", "backward", "optimizer"))
    return StepTime(
        host_seconds(forward) / work.passes,
        host_seconds(backward) / work.passes,
        host_seconds(optimizer),
        (gpu_seconds(forward, peak) + gpu_seconds(backward, peak)) / work.passes,
        gpu_seconds(optimizer, peak),
    )


def paces(forecast: StepTime, seconds: float) -> tuple[float, float]:
    """How much slower host and GPU are than in the forecast of a step whose real length is known.

    The length is taken for the GPU's time, unless launching alone was forecast to take as long: then it is the host's,
    and the GPU is not slower than in the forecast.
    """
    if forecast.host >= seconds:
        return seconds / forecast.host, min(1.0, seconds / forecast.gpu)
    return 1.0, seconds / forecast.gpu


def host_seconds(operators: Iterable[Operator]) -> float:
    """How long the host takes to launch them."""
    return sum(max(VIEW, operator.launches * (CELL_LAUNCH if operator.recurrent else LAUNCH)) for operator in operators)


def gpu_seconds(operators: Iterable[Operator], peak: Peak) -> float:
    """How long the GPU takes to run them, one after the other."""
    return sum(_seconds_on(operator, peak) for operator in operators if operator.launches)


def _seconds_on(operator: Operator, peak: Peak) -> float:
    rate = {FULL: peak.full, TF32: peak.tf32}.get(operator.format, peak.half)
    computing = operator.flops / (rate * (RECURRENT_SHARE if operator.recurrent else COMPUTE_SHARE))
    return max(computing, operator.bytes / (MEMORY_SHARE * peak.memory), SHORTEST_KERNEL * operator.launches)
