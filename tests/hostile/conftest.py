"""A payload that shows whether it ran: reading it with an unsafe loader makes a folder."""

import os
from pathlib import Path

import pytest


class Trap:
    """Pickled, it is a call of os.mkdir. ``has_sprung`` tells once, and sets it up again."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)

    @property
    def has_sprung(self) -> bool:
        sprung = self.trace.exists()
        if sprung:
            self.trace.rmdir()
        return sprung


@pytest.fixture
def trap(tmp_path) -> Trap:
    return Trap(tmp_path / "trace-of-a-trap")
