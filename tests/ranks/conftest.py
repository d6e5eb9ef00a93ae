"""Launches of several ranks: forked from a warm process, with a limit of time that turns a hang into a failure."""

import inspect
import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for what the tests of this folder share

from warm_process import Launch, Outcome  # noqa: E402

LIMIT = 900.0  # seconds, longer than ranks wait for one another: it ends what hangs, whatever else the machine does


class Launcher:
    """``launch(2, function, x=1)`` runs ``function(x=1)`` of the test's file on two ranks and returns their values."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.launches = 0

    def __call__(self, world: int, function: Callable[..., Any], **arguments: Any) -> list[Any]:
        outcomes = self.outcomes(world, function, **arguments)
        for outcome in outcomes:
            assert not outcome.error and outcome.exit_code == 0, f"rank {outcome.rank}: {outcome.output[-3000:]}"
        return [outcome.value for outcome in outcomes]

    def outcomes(
        self, world: int, function: Callable[..., Any], *, environment: dict[str, str] | None = None, **arguments: Any,
    ) -> list[Outcome]:  # fmt: skip
        """How each rank ended. A rank that does not end in time fails the test.

        brim has no native code, so a crash of the interpreter is torch's: a gloo thread has died in malloc, once in
        some ten thousand launches, and memcheck finds nothing in what brim asks of it. Such a launch is made once more,
        with a warning that shows where the ranks were; a second crash is the test's.
        """
        outcomes = self._outcomes(world, function, environment, arguments)
        crashed = [outcome for outcome in outcomes if outcome.exit_code == -signal.SIGSEGV]
        if crashed:
            where = "\n".join(f"rank {outcome.rank}: {outcome.output[-2500:]}" for outcome in crashed)
            warnings.warn(f"the interpreter crashed, so the ranks are launched again: {where}", stacklevel=2)
            outcomes = self._outcomes(world, function, environment, arguments)
        return outcomes

    def _outcomes(
        self, world: int, function: Callable[..., Any], environment: dict[str, str] | None, arguments: dict[str, Any],
    ) -> list[Outcome]:  # fmt: skip
        self.launches += 1
        folder = self.folder / f"launch-{self.launches}"
        folder.mkdir(parents=True)
        file = inspect.getsourcefile(function)
        launch = Launch(str(file), function.__name__, arguments, world, str(folder), LIMIT, environment or {})
        pickle.dump(launch, self.process.stdin)
        self.process.stdin.flush()
        outcomes = pickle.load(self.process.stdout)
        assert isinstance(outcomes, list), outcomes
        hung = [outcome for outcome in outcomes if outcome.hung]
        assert not hung, "\n".join(f"rank {o.rank} hangs: {o.output[-2500:]}" for o in hung)
        return outcomes


@pytest.fixture(scope="session")
def warm_process(nothing_remembered: None) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [sys.executable, str(HERE / "warm_process.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    yield process
    process.stdin.close()
    process.wait()


@pytest.fixture
def launch(warm_process: "subprocess.Popen[bytes]", tmp_path: Path) -> Launcher:
    return Launcher(warm_process, tmp_path)


@pytest.fixture(scope="module")
def launch_once(warm_process: "subprocess.Popen[bytes]", tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    """For what several tests of a file look at."""
    return Launcher(warm_process, tmp_path_factory.mktemp("launches"))
