"""Going on where a run was left."""

from brim.engine.checkpoint import Checkpoints, TrainingState
from brim.engine.ranks import Ranks
from brim.errors import RunFolderError
from brim.record import Journal


def continue_run(checkpoints: Checkpoints, state: TrainingState, ranks: Ranks, journal: Journal, lr: float) -> None:
    """Load the newest checkpoint that is whole; all ranks the same one."""
    saved = None
    if ranks.is_first:
        saved = checkpoints.newest_whole(lambda sentence: journal.warn(sentence, "checkpoint"))
    saved = ranks.tell(saved)  # the first rank's choice, for all
    if saved is None and checkpoints.all():
        raise RunFolderError(f"all checkpoints in {checkpoints.folder} are damaged; start anew with another run_dir")
    if saved is None:
        journal.say("nothing to resume yet: starting from the beginning", "resume")
        return
    wished = [group["lr"] for group in state.optimizer.param_groups]
    checkpoints.load(saved, state)
    kept = [group["lr"] for group in state.optimizer.param_groups]
    if state.scheduler is None and wished != kept:
        journal.warn(f"going on with the checkpoint's learning rate, {float(kept[0]):g}, not with lr={lr:g}")
    progress = state.progress
    if len(set(ranks.gather((progress.step, progress.position)))) > 1:
        raise RunFolderError(f"the ranks do not see the same {saved}; put the run folder where all of them can")
    journal.say(
        f"resuming after step {progress.step:,} (epoch {progress.epoch + 1}, sample {progress.position:,})",
        "resume",
    )
