"""Waiting for something that another process does, for as long as that process lives.

There is no limit of time here: what a busy machine needs is not known, and a hang is ended by the limit of the suite.
"""

import subprocess
import time
from collections.abc import Callable
from typing import Any

BETWEEN_LOOKS_S = 0.02


def wait_until(condition: Callable[[], Any], process: "subprocess.Popen[Any]") -> None:
    """Return once the condition holds; fail where the process has ended without it."""
    while not condition():
        if process.poll() is not None and not condition():
            raise AssertionError(f"the process ended first, with {process.returncode}: {process.communicate()}")
        time.sleep(BETWEEN_LOOKS_S)
