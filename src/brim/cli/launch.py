"""Starting the ranks of a run on this machine, through torch's own elastic launcher."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from brim.errors import INTERRUPTED, BrimError, Preempted

RESTARTS = 3
RUN_DIR = "trainer.run_dir="
VERDICT = "BRIM_VERDICT"  # names a file that holds the exit code with which starting again is in vain
SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"  # that torch's launcher hands on; the last one would end it
LAST_STEP_S = 90  # for the last step and its checkpoint, before the launcher kills; it would after 30


def is_a_rank() -> bool:
    """Whether a launcher has started this process as one of several."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def was_restarted() -> bool:
    """Whether the ranks were started again because one was lost: then they go on from the last checkpoint."""
    return is_a_rank() and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


def default_ranks(trainer: Any) -> int:
    """One for each GPU that is there, where the run is to use all of them."""
    from brim.hardware import inventory
    from brim.hardware.tiers import most_gpus

    uses_all = trainer.device == "cuda" and trainer.use_multi_gpu and trainer.strategy in ("auto", "ddp", "fsdp")
    gpus = len(inventory().gpus)
    return max(1, min(gpus, most_gpus(trainer.tier) or gpus)) if uses_all else 1


def launch_ranks(ranks: int, arguments: list[str], has_folder: bool) -> None:
    """Run ``brim train`` with these arguments in so many processes; ends with the exit code of the first that failed.

    They share a run folder, which is chosen here where none is: ranks that are started again must find it.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    if not has_folder:
        arguments = [*arguments, f"{RUN_DIR}{Path('runs') / f'{datetime.now():%Y%m%d-%H%M%S}-{ranks}-ranks'}"]
    options = ["--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={RESTARTS}"]
    options.append(f"--signals-to-handle={SIGNALS}")
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(LAST_STEP_S))
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun would, with a warning; brim shares out the cores itself
    with tempfile.TemporaryDirectory() as folder:
        verdict = Path(folder) / "verdict"
        os.environ[VERDICT] = str(verdict)
        try:
            torchrun([*options, "-m", "brim", "train", *arguments])
        except SignalException as error:
            stopped_by_user = error.sigval == signal.SIGINT
            sys.exit(INTERRUPTED if stopped_by_user else Preempted.exit_code)
        except ChildFailedError as error:
            sys.exit(int(verdict.read_text()) if verdict.exists() else error.get_first_failure()[1].exitcode)


@contextmanager
def no_restart_on_permanent_error() -> Iterator[None]:
    """What brim refuses it would refuse again: ranks that are started once more for it end at once."""
    verdict = Path(os.environ.get(VERDICT, "/nonexistent"))
    if is_a_rank() and verdict.exists():
        sys.exit(int(verdict.read_text()))
    try:
        yield
    except BrimError as error:
        if is_a_rank() and error.exit_code != Preempted.exit_code and verdict.parent.exists():
            aside = verdict.with_name(f".{verdict.name}-{os.environ['RANK']}")  # a reader sees all of it or none
            aside.write_text(str(error.exit_code))
            aside.replace(verdict)
        raise
