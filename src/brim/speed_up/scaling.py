"""How long a step takes on several GPUs: what each computes of its share, and what they send each other.

Three ways to train on them, each as it is done:

- DDP as brim's ranks do it: gradients in buckets of 8 MiB, copied in and out, sent while the backward pass runs, the
  last one after it; then sums of losses and counts, which the host waits for. What hides is taken to be as with FSDP2.
- DataParallel: one process. Each pass sends the parameters from the first GPU to the others, and the gradients back;
  the loss is computed where its share is, and the optimizer steps on the first GPU alone. The threads share one Python
  interpreter, so the host's part of the forward pass takes n times as long, and making the replicas comes on top; the
  backward pass is driven by threads of torch's own, one for each GPU, which do not wait for Python.
- FSDP2, of torch: parameters are gathered twice and gradients scattered once, block by block. Of what is sent while
  something is computed, `HIDDEN` is taken to cost no time and the rest to slow the computing down, since both share
  memory and multiprocessors; the first block's gathering and the last one's scattering hide behind nothing. The
  optimizer steps on a shard.
"""

from dataclasses import dataclass

from brim.hardware.links import Link
from brim.hardware.peaks import Peak
from brim.speed_up.collectives import all_gather_seconds, all_reduce_seconds, broadcast_seconds, buckets_of
from brim.speed_up.step_time import MEMORY_SHARE, StepTime
from brim.speed_up.work import Work

STRATEGIES = ("dp", "ddp", "fsdp")
COLLECTIVE = 30e-6  # the host's time for one exchange
REPLICA = 20e-6  # the host's time to make one module of one replica
HIDDEN = 0.8
BACKWARD = 2 / 3  # of the two passes
PASSES_OVER_GRADIENTS = 6  # weighed, copied into the bucket, and back: each reads and writes
EXCHANGED_WITH_LOSS = 6  # numbers of 8 bytes, beside one for each parameter


@dataclass(frozen=True)
class Spent:
    """Seconds of a step: computing, with launching, and what the GPUs wait for each other."""

    computing: float
    exchanging: float = 0.0

    @property
    def seconds(self) -> float:
        return self.computing + self.exchanging


@dataclass(frozen=True)
class Together:
    """GPUs that train together: how many, and over what they talk. ``peak`` is None where it is not known."""

    gpus: int
    link: Link
    peak: Peak | None = None

    def spent(self, strategy: str, time: StepTime, work: Work, passes: int = 1) -> Spent:
        """A step in so many passes; ``time`` is that of one GPU's share, alone and for all of them."""
        if self.gpus == 1:
            return Spent(time.seconds)
        if strategy == "ddp":
            return _ddp(time, work, self)
        return (_data_parallel if strategy == "dp" else _fsdp)(time, work, self, passes)


def _ddp(time: StepTime, work: Work, all: Together) -> Spent:
    numbers = 8 * (EXCHANGED_WITH_LOSS + len(work.gradients))
    status = all_reduce_seconds(numbers, all.gpus, all.link) + COLLECTIVE
    sends = [all_reduce_seconds(size, all.gpus, all.link) + COLLECTIVE for size in buckets_of(work.gradients)]
    sending, last = sum(sends), sends[-1] if sends else 0.0
    waiting = max(last, sending - HIDDEN * min(sending, BACKWARD * time.gpu_passes))
    moved = PASSES_OVER_GRADIENTS * sum(work.gradients)
    copying = 0.0 if all.peak is None else moved / (MEMORY_SHARE * all.peak.memory)
    passes = max(time.host_forward + time.host_backward, time.gpu_passes)
    return Spent(passes + max(time.host_optimizer, time.gpu_optimizer), status + waiting + copying)


def _data_parallel(time: StepTime, work: Work, all: Together, passes: int) -> Spent:
    replicas = passes * all.gpus * work.modules * REPLICA
    host = all.gpus * time.host_forward + time.host_backward + replicas
    there, back = work.parameters + work.batch * (all.gpus - 1), sum(work.gradients)
    sending = sum(broadcast_seconds(size, all.gpus, all.link) for size in (there, back))
    return Spent(max(host, time.gpu_passes) + max(time.host_optimizer, time.gpu_optimizer), passes * sending)


def _fsdp(time: StepTime, work: Work, all: Together, passes: int) -> Spent:
    gathering = all_gather_seconds(work.parameters / work.blocks, all.gpus, all.link)
    scattering = all_gather_seconds(sum(work.gradients) / work.blocks, all.gpus, all.link)
    sending = passes * work.blocks * (2 * gathering + scattering)
    waiting = max(gathering + scattering, sending - HIDDEN * min(sending, time.gpu_passes))
    host = time.host + 3 * passes * work.blocks * COLLECTIVE
    return Spent(max(host, time.gpu_passes + time.gpu_optimizer / all.gpus), waiting)
