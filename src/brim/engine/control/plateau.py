"""ReduceLROnPlateau, and in which direction the metric that it waits for gets better."""

import math

from torch.optim.lr_scheduler import ReduceLROnPlateau

from brim.engine.evaluation.monitor import Monitor
from brim.engine.run_state.progress import Progress


def follow_direction(
    plateau: ReduceLROnPlateau, monitor: str, higher_is_better: bool, best: float | None = None
) -> tuple[str, bool]:
    """Let it follow the monitored metric; returns a sentence for the user and whether it is a warning.

    ``"min"`` is torch's default, which nobody needs to have meant: where higher is better it becomes ``"max"``.
    ``"max"`` was said by the user and stays. ``best``: the best evaluation so far, of a run that is continued.

    >>> import torch
    >>> plateau = ReduceLROnPlateau(torch.optim.SGD([torch.ones(1)], 0.1))
    >>> follow_direction(plateau, "accuracy", higher_is_better=True)[1], plateau.mode
    (False, 'max')
    """
    if higher_is_better == (plateau.mode == "max"):
        return "", False
    if plateau.mode == "max":
        return (
            f"ReduceLROnPlateau has mode='max', and {monitor!r} is better when it is lower: the rate falls while it "
            "improves; leave mode out, or say monitor= and mode= to the trainer",
            True,
        )
    has_seen_none = math.isinf(plateau.best)
    plateau._init_is_better("max", plateau.threshold, plateau.threshold_mode)
    plateau.best = plateau.mode_worse if has_seen_none or best is None else best
    return f"ReduceLROnPlateau follows {monitor!r}, where higher is better: mode='max'", False


def follow_monitor(progress: Progress, scheduler: object, monitor: Monitor) -> bool:
    """Let this metric decide; True if another one did in the checkpoint, whose numbers are then compared with none.

    >>> follow_monitor(Progress(monitor="loss", higher_is_better=False), None, Monitor("loss", False))
    False
    """
    if not progress.follow(monitor.name, monitor.higher_is_better):
        return False
    if isinstance(scheduler, ReduceLROnPlateau):
        mode = "max" if monitor.higher_is_better else "min"  # that of the checkpoint was the other metric's
        scheduler._init_is_better(mode, scheduler.threshold, scheduler.threshold_mode)
        scheduler._reset()
    return True
