"""A process that has imported torch and brim and forks the ranks of a launch, which takes milliseconds, not seconds.

It starts no thread and computes no gradient, since neither survives a fork. Requests come in on stdin, one pickle each;
what came of every rank goes out on stdout.
"""

import contextlib
import faulthandler
import gc
import importlib.util
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]  # for what tests share


@dataclass(frozen=True)
class Launch:
    """A function of a test file, to be run by ``world`` ranks, each in ``folder``."""

    file: str
    function: str
    arguments: dict[str, Any]
    world: int
    folder: str
    limit: float
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """What became of a rank. ``error`` is the name of the exception's class; a rank that was killed has neither."""

    rank: int
    value: Any = None
    error: str = ""
    message: str = ""
    exit_code: int = 0
    output: str = ""
    hung: bool = False


@cache
def module_at(file: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def be_rank(launch: Launch, rank: int, port: int) -> None:
    """Run the function and leave what it returned, or raised, in a file. Does not return."""
    os.setsid()  # so that it can be ended together with the loader processes that it starts
    folder = Path(launch.folder)
    os.chdir(folder)
    output = os.open(folder / f"rank-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.enable(file=sys.stderr)  # a crash of the interpreter says where it was
    faulthandler.dump_traceback_later(max(1.0, launch.limit - 1), file=sys.stderr)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
    if launch.world > 1:
        os.environ.update(
            RANK=str(rank), WORLD_SIZE=str(launch.world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(launch.world),
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo",
        )  # fmt: skip
    os.environ.update(launch.environment)
    outcome = Outcome(rank)
    try:
        outcome.value = getattr(module_at(launch.file), launch.function)(**launch.arguments)
    except BaseException as error:
        traceback.print_exc()
        outcome.error, outcome.message = type(error).__name__, str(error)
        outcome.exit_code = getattr(error, "exit_code", 1)
    (folder / f"rank-{rank}.pickle").write_bytes(pickle.dumps(outcome))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(outcome.exit_code)


def carry_out(launch: Launch) -> list[Outcome]:
    module_at(launch.file)
    port, pids = free_port(), []
    for rank in range(launch.world):
        pid = os.fork()
        if pid == 0:
            be_rank(launch, rank, port)
        pids.append(pid)
    codes = wait_for(pids, time.monotonic() + launch.limit)
    return [outcome_of(launch, rank, codes.get(pid)) for rank, pid in enumerate(pids)]


def wait_for(pids: list[int], deadline: float) -> dict[int, int]:
    """The exit codes of those that end in time; the others are killed."""
    codes: dict[int, int] = {}
    while len(codes) < len(pids) and time.monotonic() < deadline:
        for pid in set(pids) - set(codes):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    for pid in set(pids) - set(codes):
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return codes


def outcome_of(launch: Launch, rank: int, code: int | None) -> Outcome:
    left = Path(launch.folder) / f"rank-{rank}.pickle"
    # It says what the process itself has pickled a moment ago.
    outcome = pickle.loads(left.read_bytes()) if left.exists() else Outcome(rank)
    outcome.hung = code is None
    outcome.exit_code = outcome.exit_code if code is None else code
    text = Path(launch.folder) / f"rank-{rank}.txt"
    outcome.output = text.read_text(errors="replace") if text.exists() else ""
    return outcome


def main() -> None:
    import torch
    import torch._dynamo  # which torch imports when the first optimizer is made: more than a second for every rank

    with contextlib.suppress(ImportError):
        import torch.utils.tensorboard  # which the first logger of a run imports

    import brim
    import brim.engine.fsdp.sharded_average
    import brim.engine.fsdp.sharded_evaluation
    import brim.engine.fsdp.sharded_training
    import brim.engine.trainer
    import brim.workloads.recommender  # noqa: F401
    from brim.engine.checkpoints import saver

    saver.PATIENCE_S = 600.0  # which checkpoints there are is no matter of how busy the machine is
    torch.set_num_threads(1)
    gc.freeze()  # pages that nobody writes to are never copied
    replies = os.fdopen(os.dup(1), "wb")
    while True:
        try:
            launch = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            reply = carry_out(launch)
        except Exception:
            reply = traceback.format_exc()
        pickle.dump(reply, replies)
        replies.flush()


if __name__ == "__main__":
    sys.modules["warm_process"] = sys.modules["__main__"]  # under this name the other side pickles
    Launch.__module__ = Outcome.__module__ = "warm_process"
    main()
