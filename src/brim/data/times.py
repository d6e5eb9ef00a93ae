"""Where the time of the feed goes."""

from dataclasses import dataclass, fields


@dataclass
class FeedTimes:
    """Seconds since they were last taken, by part.

    ``fetch`` and ``collate`` are spent where the batch is read, which may be in several workers at once; ``pin`` and
    ``copy`` on its way to the device, ``copy`` by the device itself; ``wait`` is how long the loop stood still.
    """

    batches: int = 0
    fetch: float = 0.0
    collate: float = 0.0
    pin: float = 0.0
    copy: float = 0.0
    wait: float = 0.0

    def take(self) -> dict[str, float]:
        """Milliseconds a batch, for the parts that took any; the count starts anew."""
        batches = max(1, self.batches)
        parts = {part.name: getattr(self, part.name) * 1e3 / batches for part in fields(self) if part.name != "batches"}
        self.batches, self.fetch, self.collate, self.pin, self.copy, self.wait = 0, 0.0, 0.0, 0.0, 0.0, 0.0
        return {name: round(value, 4) for name, value in parts.items() if value > 0}
