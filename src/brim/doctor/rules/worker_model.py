"""What a number of worker processes would bring: arithmetic on what a batch costs and what a step takes without it."""

from dataclasses import dataclass
from math import ceil

from brim.doctor.observation import Observation

HAND_OVER = 0.4e-3  # seconds of the main process for each tensor that comes out of a worker
WITHIN = 1.03  # of the best: then fewer workers are better
MOST = 16
WAITS = 0.5  # CPU seconds by seconds: below, making a batch is mostly waiting
KEEPING_UP = 0.3


@dataclass(frozen=True)
class Feeding:
    """Seconds a step: to make its batches, of the CPU and on the clock, and for everything else."""

    make: float
    make_cpu: float
    rest: float
    cores: int
    tensors: int

    def step(self, workers: int) -> float:
        """Seconds a step with so many workers.

        Nothing is faster than the slowest of: the step itself, the workers, and the cores that they share with it. What
        only waits (for a disk, a server) needs no core.

        >>> feeding = Feeding(make=0.03, make_cpu=0.03, rest=0.01, cores=4, tensors=2)
        >>> round(feeding.step(0), 3), round(feeding.step(2), 3)
        (0.04, 0.015)
        """
        if workers == 0:
            return self.rest + self.make
        with_hand_over = self.rest + HAND_OVER * self.tensors
        return max(with_hand_over, self.make / workers, (self.make_cpu + with_hand_over) / self.cores)

    @property
    def alone(self) -> float:
        """Seconds a step without workers. In workers that share cores, computing takes longer than it would here."""
        waits = self.make_cpu < WAITS * self.make
        return self.rest + (self.make if waits else self.make_cpu)

    def keep_up(self, workers: int) -> bool:
        """Whether so many workers make batches much faster than they are used: waiting is then not for want of them."""
        return workers > 0 and self.make / workers < KEEPING_UP * self.rest

    def best(self) -> int:
        """The smallest number of workers that comes near the best."""
        steps = {workers: self.step(workers) for workers in range(MOST + 1)}
        fastest = min(steps.values())
        return next(workers for workers, step in steps.items() if step <= fastest * WITHIN)

    def enough(self) -> int:
        """How many workers keep up with the step, if cores were free."""
        return max(1, ceil(self.make / max(self.rest, 1e-6)))


def feeding(seen: Observation) -> Feeding | None:
    """The numbers of what was seen; None where no loader feeds the training, or its workers could not be timed."""
    loader, window = seen.train_loader, seen.timed
    if loader is None or window is None or loader.make_seconds is None or not window.steps:
        return None
    return Feeding(
        make=loader.make_seconds * seen.batches_per_step,
        make_cpu=(loader.make_cpu_seconds or 0.0) * seen.batches_per_step,
        rest=max(1e-6, (window.seconds - window.data * seen.part_of_waiting) / window.steps),
        cores=seen.host.cores,
        tensors=loader.batch_tensors,
    )
