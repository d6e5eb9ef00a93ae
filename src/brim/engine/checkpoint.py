"""Checkpoints: whole or not there at all, and readable without pickle's powers.

A checkpoint is a folder: ``model.safetensors`` (tied weights once, aliases in its metadata), ``training.pt``
(optimizer, schedule, loss scale, generators; loads with ``weights_only=True``), ``progress.json`` and the checksums of
these files.
"""

import copy
import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from brim.engine.generators import generator_states, restore_generators, seed_rank
from brim.engine.host_copy import HostModel, host_copy, without_numpy
from brim.engine.precision import Precision
from brim.engine.progress import Progress
from brim.engine.ranks import Ranks
from brim.engine.weights import load_weights, save_weights
from brim.engine.whole_folder import WholeFolder, damage, former
from brim.errors import RunFolderError

WEIGHTS = "model.safetensors"
TRAINING = "training.pt"
PROGRESS = "progress.json"
BEST = "best"


@dataclass
class TrainingState:
    """Everything that changes while a run goes on."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None
    precision: Precision
    progress: Progress
    ranks: Ranks = field(default_factory=Ranks)
    generators: list[dict[str, Any]] = field(default_factory=list)  # of all ranks, at the last meeting

    def meet(self) -> None:
        """Before a checkpoint: the first rank writes it, with the generators of all."""
        if not self.ranks.is_alone:
            self.generators = self.ranks.gather(generator_states(self.precision.device))

    def meet_for_weights(self) -> None:
        """The same where only the weights are to be written."""

    def weights(self) -> nn.Module | HostModel:
        """What has the weights to be written."""
        return self.model

    def optimizer_state(self) -> dict[str, Any]:
        return dict(self.optimizer.state_dict())

    def forget_copies(self) -> None:
        """After a checkpoint: what was made for it alone is let go."""

    def tensors(self) -> dict[str, Any]:
        scaler = self.precision.scaler
        return {
            "rank_generators": self.generators,
            "optimizer_class": type(self.optimizer).__name__,
            "optimizer": without_numpy(self.optimizer_state()),
            "scheduler": None if self.scheduler is None else without_numpy(self.scheduler.state_dict()),
            "scaler": None if scaler is None else scaler.state_dict(),
            "generators": generator_states(self.precision.device),
        }

    def restore(self, tensors: dict[str, Any], progress: Progress) -> None:
        saved, own = tensors["optimizer_class"], type(self.optimizer).__name__
        if saved != own:
            raise ValueError(f"it was made with the optimizer {saved}, and this run has {own}")
        self.optimizer.load_state_dict(tensors["optimizer"])
        if self.scheduler is not None and tensors["scheduler"] is not None:
            self.scheduler.load_state_dict(tensors["scheduler"])
        if self.precision.scaler is not None and tensors["scaler"] is not None:
            self.precision.scaler.load_state_dict(tensors["scaler"])
        of_ranks = tensors.get("rank_generators") or [tensors["generators"]]
        if len(of_ranks) == self.ranks.world:
            restore_generators(of_ranks[self.ranks.rank], self.precision.device)
        elif self.ranks.is_first:
            restore_generators(tensors["generators"], self.precision.device)
        else:  # there was no such rank: a stream of its own
            seed_rank(progress.step, self.ranks.rank)
        vars(self.progress).update(vars(progress))


@dataclass(frozen=True)
class Moment:
    """What a checkpoint holds, at one step. With copies on the host it can be written while the run goes on."""

    model: nn.Module | HostModel
    tensors: dict[str, Any]
    progress: dict[str, Any]

    @classmethod
    def of(cls, state: TrainingState, copied: bool = False) -> "Moment":
        progress = copy.deepcopy(state.progress.to_json())
        if copied:
            return cls(HostModel(state.weights()), host_copy(state.tensors()), progress)
        return cls(state.weights(), state.tensors(), progress)


class Checkpoints:
    """The checkpoints of one run: the newest few and the best."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self.keep = keep

    def save(self, state: TrainingState) -> Path:
        """Write a checkpoint of everything, named after the step."""
        return self.write(Moment.of(state))

    def write(self, moment: Moment) -> Path:
        path = self.folder / step_name(moment.progress["step"])
        try:
            with WholeFolder(path) as aside:
                save_weights(moment.model, aside / WEIGHTS)
                torch.save(moment.tensors, aside / TRAINING)
                (aside / PROGRESS).write_text(json.dumps(moment.progress))
        except (OSError, RuntimeError) as error:  # torch's writer raises RuntimeError on a full disk
            raise RunFolderError(f"cannot write the checkpoint {path}: {error}; free some space") from error
        # Newer ones are damaged, or the run would have gone on from them: they take nobody's place.
        for old in [other for other in self.all() if other.name <= path.name][: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)
        return path

    def save_best(self, model: nn.Module | HostModel, step: int) -> None:
        """Keep these weights as the best so far."""
        try:
            with WholeFolder(self.folder / BEST) as aside:
                save_weights(model, aside / WEIGHTS)
                (aside / PROGRESS).write_text(json.dumps({"step": step}))
        except OSError as error:
            raise RunFolderError(f"cannot write the best weights: {error}; free some space") from error

    def load_best(self, model: nn.Module, step: int | None = None) -> bool:
        """Put the best weights back into ``model``; False if there are none, or only those of another ``step``."""
        best = self.folder / BEST
        found = (path for path in (best, former(best)) if path.exists() and damage(path) is None)
        whole = next((path for path in found if step is None or _best_step(path) in (step, None)), None)
        if whole is None:
            return False
        load_weights(model, whole / WEIGHTS)
        return True

    def all(self) -> list[Path]:
        """Checkpoints from oldest to newest."""
        return sorted(self.folder.glob("step-*"))

    def newest_whole(self, told: Callable[[str], None]) -> Path | None:
        """The newest checkpoint that is as it was written; ``told`` hears of newer ones that are not."""
        for path in reversed(self.all()):
            wrong = damage(path)
            if wrong is None:
                return path
            told(f"the checkpoint {path} is damaged ({wrong}): the one before it is used")
        return None

    def load(self, path: Path, state: TrainingState) -> None:
        """Continue from a checkpoint: everything in ``state`` becomes as it was."""
        load_weights(state.model, path / WEIGHTS)
        try:
            tensors = torch.load(path / TRAINING, map_location="cpu", weights_only=True)
            progress = Progress.from_json(json.loads((path / PROGRESS).read_text()))
            state.restore(tensors, progress)
        except pickle.UnpicklingError as error:
            # Not in torch's words, which recommend weights_only=False.
            why = f"{TRAINING} is damaged, or holds objects that can run code, which brim does not load"
            raise RunFolderError(f"the checkpoint {path} cannot be used: {why}") from error
        except Exception as error:  # whatever torch makes of bytes of anybody's
            why = (str(error) or type(error).__name__).splitlines()[0]
            raise RunFolderError(f"the checkpoint {path} cannot be used: {why}") from error


def step_name(step: int) -> str:
    """The name of the checkpoint of a step."""
    return f"step-{step:09d}"


def _best_step(best: Path) -> int | None:
    """The step that best weights are of; None where they do not say, as those of earlier versions."""
    try:
        step = json.loads((best / PROGRESS).read_text())["step"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) else None
