"""A run from its first callback to its last: the loop, what is left where it breaks off, the weights it ends with."""

import sys
from contextlib import suppress

import torch

from brim.engine.mistakes.torch_errors import explained_errors
from brim.engine.run.training_run import TrainingRun
from brim.engine.step.nonfinite import Rewind
from brim.engine.step.transaction import OptimizerRanOut
from brim.errors import BadNumbers, CannotFit, RanksLost


@explained_errors
def train_whole(run: TrainingRun, device: torch.device) -> dict[str, float]:
    """Train; the model has what comes of it, on ``device``. Returns its metrics by the evaluation data.

    Raises:
        Interrupted: a signal ended it, and there is a checkpoint to go on from; Preempted if it was not Ctrl-C.
    """
    try:
        if run.state.progress.step:  # of a checkpoint
            run.callbacks.call("on_load", run.owner, run.state.progress.step)
        run.callbacks.call("on_fit_start", run.owner)
        with run.stopping.interrupt:
            run.train()
    except OptimizerRanOut:
        raise
    except CannotFit as error:  # no step was left half done, so what was reached can be kept
        run.saver.wait()
        if run.ranks.is_alone or getattr(error, "is_on_all_ranks", False):  # else the others are elsewhere
            with suppress(Rewind, BadNumbers):  # nothing worth keeping
                run.save()
        raise
    finally:
        run.saver.wait()
        run.log.bar.close()
        run.stopping.is_live = False
        # Memory cannot be given back while the device waits for ranks that are lost.
        if sys.exception() is not None and not isinstance(sys.exception(), RanksLost):
            run.reclaim_memory()
    metrics = {} if run.stopping.was_interrupted else run.final.go_to_best()
    _end(run, device)
    if run.stopping.was_interrupted:
        raise run.stopping.error(run.state.progress.step, next(reversed(run.checkpoints.all()), None))
    run.final.keep()
    if run.stopping.reason is not None:
        run.journal.say(f"stopped: {run.stopping.reason}", "stopped")
    return metrics


def _end(run: TrainingRun, device: torch.device) -> None:
    """The last callbacks and notes, once the model has the weights that the run ends with."""
    if run.sharded is not None and run.callbacks.handles("on_fit_end"):
        run.sharded.end(device)  # callbacks see the user's own model, and have the last word on it
        run.sharded = None
    run.callbacks.call("on_fit_end", run.owner)
    run.log.write_logged(run.state.progress)
    run.reclaim_memory()  # a trainer that is done holds no memory for steps to come
    run.findings.notes.peak(run.guard.watch, run.findings.plan, run.findings.resident)
    if run.captured is not None:
        run.findings.notes.replays(run.captured.report)
