"""The weights of a run as one file."""

from pathlib import Path

from brim.engine.checkpoints.checkpoint import BEST, FINAL, Checkpoints
from brim.engine.checkpoints.shared_files import WEIGHTS, checkpoint_damage
from brim.engine.checkpoints.weights import copy_weights
from brim.engine.checkpoints.whole_folder import is_checkpoint
from brim.errors import ConfigError, RunFolderError
from brim.record import RunFolder
from brim.whole_files import written_aside


def export_weights(run: Path, to: Path | None = None, last: bool = False) -> tuple[Path, Path]:
    """Copy the weights of a run, or of one of its checkpoints, to a file; returns that and where they come from."""
    source = run if is_checkpoint(run) else _chosen(RunFolder.open(run), last)
    wrong = checkpoint_damage(source)
    if wrong is not None:
        raise RunFolderError(f"the checkpoint {source} is damaged ({wrong}); name another one")
    target = to or (run if source != run else run.absolute().parent.parent) / WEIGHTS
    if target.suffix != ".safetensors":
        raise ConfigError(f"--to={target} must end in .safetensors")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(target) as aside:
            copy_weights(source / WEIGHTS, aside)
    except OSError as error:
        raise RunFolderError(f"cannot write {target}: {error.strerror}; choose another place with --to") from error
    return target, source


def _chosen(folder: RunFolder, last: bool) -> Path:
    checkpoints = Checkpoints(folder.checkpoints, keep=1)
    chosen = next((path for name in (FINAL, BEST) if (path := folder.checkpoints / name).exists()), None)
    if chosen is None or last:
        chosen = checkpoints.newest_whole(lambda sentence: None)
    if chosen is None:
        raise RunFolderError(f"{folder.path} holds no whole checkpoint; let the run finish an epoch")
    return chosen
