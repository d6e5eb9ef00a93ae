"""Room for the batches of worker processes in shared memory: one that has too little ends with a bus error."""

from dataclasses import dataclass

from brim.errors import DataError

PLENTY = 1 << 30  # bytes of /dev/shm


@dataclass(frozen=True)
class SharedRoom:
    """What /dev/shm had free before workers were started, each of which puts so many batches there."""

    count: int
    prefetch: int
    free: int

    @property
    def is_short(self) -> bool:
        """Whether a batch should be tried before workers are started; where there is plenty, each tries its first."""
        return self.free < PLENTY

    def check(self, batch_bytes: int) -> None:
        """Refuse what has no room there: torch would end with a bus error in the middle of an epoch.

        >>> SharedRoom(count=4, prefetch=2, free=64_000_000).check(batch_bytes=8_000_000)
        """
        needed = self.count * self.prefetch * batch_bytes
        if needed > self.free:
            raise DataError(
                f"{self.count} workers with {self.prefetch} batches of {in_mb(batch_bytes)} each need {in_mb(needed)} "
                f"of /dev/shm, which has {in_mb(self.free)} left; use fewer workers or a smaller prefetch_factor, or "
                "enlarge it (docker --shm-size)"
            )


def in_mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
