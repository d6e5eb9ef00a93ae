"""Going on where a run was left."""

import inspect
from pathlib import Path
from types import FunctionType
from typing import Any

from torch.optim import Optimizer

from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.engine.checkpoints.shared_files import checkpoint_damage
from brim.engine.checkpoints.whole_folder import damage
from brim.engine.distributed.ranks import Ranks
from brim.engine.run_state.progress import Progress
from brim.engine.run_state.sample_order import SampleOrder
from brim.engine.run_state.training_state import TrainingState
from brim.errors import RunFolderError
from brim.record import Journal

HOW = ("params", "param_names", "lr", "initial_lr", "foreach", "fused", "capturable", "differentiable")
MOVED = ("betas", "momentum", "max_lr", "min_lr", "base_momentum", "max_momentum")  # by a one-cycle schedule
PLAIN = (bool, int, float, str, tuple, type(None))


def continue_run(
    checkpoints: Checkpoints, state: TrainingState, ranks: Ranks, journal: Journal, order: SampleOrder
) -> None:
    """Load the newest checkpoint that is whole; all ranks the same one. ``order`` is that of this run's samples."""
    saved = None
    if ranks.is_first:
        saved = _newest(checkpoints, state, journal)
    saved = ranks.broadcast_object(saved)  # the first rank's choice, for all
    if saved is None and checkpoints.all():
        newest = checkpoints.all()[-1]
        wrong = checkpoint_damage(newest)
        if damage(newest) is None:
            wrong = f"{wrong}, and this model does not have the same"
        raise RunFolderError(
            f"all checkpoints in {checkpoints.folder} are damaged ({wrong}); start anew with another run_dir"
        )
    if saved is None:
        journal.say("nothing to resume yet: starting from the beginning", "resume")
        return
    progress = checkpoints.progress_of(saved)
    remarks = [remark_on_order(progress.order, order, progress.position, str(saved))]
    wished, options = _rates(state), _options(state)
    remarks += checkpoints.load(saved, state)
    for asked, kept in zip(wished, _rates(state), strict=False):
        if asked != kept:
            remarks.append(f"going on with the checkpoint's learning rate, {kept:g}, not with lr={asked:g}")
    for of_group, kept_ones in zip(options, _options(state), strict=False):
        for name in [name for name, asked in of_group.items() if kept_ones.get(name, asked) != asked]:
            remarks.append(f"going on with the checkpoint's {name}={kept_ones[name]}, not with {of_group[name]}")
    for remark in dict.fromkeys(remarks):
        journal.warn_for_all(remark, "resume")
    progress = state.progress
    if len(set(ranks.all_gather_object((progress.step, progress.position)))) > 1:
        raise RunFolderError(f"the ranks do not see the same {saved}; put the run folder where all of them can")
    if ranks.is_first:
        checkpoints.go_on(progress)
    journal.say(f"resuming after step {progress.step:,} ({_place(progress)})", "resume")


def _place(progress: Progress) -> str:
    """Where a run stands in its data.

    >>> _place(Progress(epoch=2, position=64)), _place(Progress(epoch=3))
    ('epoch 3, sample 64', 'the end of epoch 3')
    """
    if progress.position or not progress.epoch:
        return f"epoch {progress.epoch + 1}, sample {progress.position:,}"
    return f"the end of epoch {progress.epoch}"


def _newest(checkpoints: Checkpoints, state: TrainingState, journal: Journal) -> Path | None:
    """The newest checkpoint that is whole. Frozen weights that are lost may be what the user's script has built."""
    told: list[str] = []
    found = checkpoints.newest_whole(told.append)
    if found is None and checkpoints.rebuild_frozen(state.weights()):
        journal.say(
            "frozen weights were missing or damaged: this model has the same, and they are written again", "resume"
        )
        told.clear()
        found = checkpoints.newest_whole(told.append)
    for sentence in told:
        journal.warn(sentence, "checkpoint")
    return found


def remark_on_order(then: SampleOrder | None, now: SampleOrder, position: int, checkpoint: str) -> str | None:
    """What to say where samples come in another order than when the checkpoint was made; refused within an epoch.

    There a position in the one order is none in the other: samples would be trained on twice, and others never.
    """
    if then is None or then == now:
        return None
    differs = ", ".join(then.what_differs(now))
    if position == 0:
        return f"from this epoch on other samples or another order: {differs}"
    if then.is_same_place(now):
        return f"the rest of the epoch goes on with {differs}"
    raise RunFolderError(
        f"{checkpoint} stands within an epoch, after sample {position:,} of an order that this run does not have: "
        f"{differs}; resume with the same data and settings, and change them at the end of an epoch"
    )


def _rates(state: TrainingState) -> list[float]:
    """The learning rates that were set: those that a schedule starts from, where there is one."""
    return [
        float(group["lr"] if state.scheduler is None else group.get("initial_lr", group["lr"]))
        for group in state.optimizer.param_groups
    ]


def _options(state: TrainingState) -> list[dict[str, Any]]:
    """What else was set of each group, but for what only says how it is computed, and what a schedule moves."""
    passed_over = {*HOW, *_counted_by(state.optimizer), *(() if state.scheduler is None else MOVED)}
    return [
        {name: value for name, value in group.items() if isinstance(value, PLAIN) and name not in passed_over}
        for group in state.optimizer.param_groups
    ]


def _counted_by(optimizer: Optimizer) -> set[str]:
    """What an optimizer keeps in its groups that nobody has set: steps made, an estimate (schedule-free, Prodigy).

    That is what has a default and is no argument; of one that takes its settings in one piece, nothing is known.
    """
    makers = [vars(kind).get("__init__") for kind in type(optimizer).__mro__]
    arguments = {name for one in makers if isinstance(one, FunctionType) for name in inspect.signature(one).parameters}
    return set(getattr(optimizer, "defaults", ())) - arguments if "lr" in arguments else set()
