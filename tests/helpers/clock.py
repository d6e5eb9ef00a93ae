"""A clock that goes on only when it is told to: what is timed by it takes as long on any machine."""


class Clock:
    """Stands in for the module ``time``: ``monkeypatch.setattr(module, "time", clock)``."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def perf_counter(self) -> float:
        return self.now

    monotonic = time = perf_counter
