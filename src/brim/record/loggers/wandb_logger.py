"""Numbers of a run for Weights & Biases."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brim.errors import ConfigError
from brim.record.loggers.run_facts import FINISHED, Ending, generators_kept, remember_run, remembered_run, run_facts

PROJECT = "brim"
IDENTITY = "wandb.json"  # in the run folder: which run of theirs goes on where this one is resumed
STEP, EPOCH = "step", "epoch"


class WandbLogger:
    """Every line of numbers for Weights & Biases, with the settings of the run; ``loggers="wandb"`` makes one.

    A run that is resumed goes on as the same run there. Where a run of theirs is active already (``wandb.init`` in the
    script, a sweep's agent), ``WandbLogger()`` takes that one and leaves it open at the end.

    Args:
        project: its name there; None for ``WANDB_PROJECT``, else ``"brim"``.
        name: of the run; None for the name of the run folder.
        run: a run that ``wandb.init`` returned: its own settings stand, and it is not finished here.
        init: other arguments of ``wandb.init``: ``entity=``, ``tags=``, ``mode="offline"``, ``settings=``.

    >>> logger = WandbLogger(project="mnist", mode="offline")
    """

    def __init__(self, project: str | None = None, name: str | None = None, run: Any = None, **init: Any) -> None:
        if run is not None and (project or name or init):
            raise ConfigError("WandbLogger(run=) has its project and name already; leave the other arguments out")
        self._project, self._name, self._given, self._init = project, name, run, init
        self._run: Any = None
        self._is_ours = False
        self._axes: set[str] = set()  # numbers that are drawn over the steps already
        self._ending = Ending()

    def start(self, folder: Path) -> None:
        """Begin a run of theirs, or go on with the one that the run folder names."""
        self._axes, self._ending = set(), Ending()
        with generators_kept():
            import wandb

            active = self._given or (wandb.run if not (self._project or self._name or self._init) else None)
            self._is_ours = active is None
            self._run = active if active is not None else self._begin(folder)
            facts = run_facts(folder)
            # In a run of the user's own, whose names are taken, under one name.
            self._run.config.update(facts if self._is_ours else {"brim": facts}, allow_val_change=True)
            self._run.define_metric(STEP)

    def write(self, step: int, epoch: int, numbers: Mapping[str, float]) -> None:
        for name in numbers:
            if name not in self._axes:  # by a step of its own: theirs may only rise, and a resumed run goes back
                self._run.define_metric(name, step_metric=STEP)
                self._axes.add(name)
        self._run.log({STEP: step, EPOCH: epoch, **numbers})

    def close(self) -> None:
        if self._run is not None and self._is_ours:
            self._run.finish(exit_code=0 if self._ending.status() == FINISHED else 1)
        self._run = None

    def _begin(self, folder: Path) -> Any:
        import wandb

        known = remembered_run(folder, IDENTITY)
        project = self._project or known.get("project") or os.environ.get("WANDB_PROJECT") or PROJECT
        chosen = {"project": project, "name": self._name or folder.resolve().name}
        if "id" in known:
            chosen |= {"id": known["id"], "resume": "allow"}
        if wandb.run is not None:  # of the user's, who asks for another one beside it
            chosen["reinit"] = "create_new"
        if "WANDB_DIR" not in os.environ:
            chosen["dir"] = str(folder)
        run = wandb.init(**{**chosen, **self._init})
        remember_run(folder, IDENTITY, {"id": run.id, "project": project})
        return run


def is_wandb_run(one: Any) -> bool:
    """What ``wandb.init`` returned; wandb is not imported to find out.

    >>> is_wandb_run("csv")
    False
    """
    kind = type(one)
    return kind.__module__.partition(".")[0] == "wandb" and kind.__name__ == "Run"
