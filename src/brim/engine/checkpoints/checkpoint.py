"""Checkpoints: whole or not there at all, and readable without pickle's powers.

A checkpoint is a folder: ``model.safetensors`` (tied weights once; aliases, extra states of modules and where frozen
weights are in its metadata), ``training.pt`` (optimizer, schedule, loss scale, generators, what the loss keeps; loads
with ``weights_only=True``), ``progress.json`` and the checksums of these files.
"""

import copy
import json
import pickle
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from brim.engine.checkpoints.frozen_weights import FrozenWeights, PartedWeights
from brim.engine.checkpoints.shared_files import WEIGHTS, checkpoint_damage
from brim.engine.checkpoints.weights import check_types, holds_weights, load_weights, save_weights, unwritten
from brim.engine.checkpoints.whole_folder import WholeFolder, damage, former
from brim.engine.run_state.progress import Progress
from brim.engine.run_state.training_state import TrainingState
from brim.engine.state.host_copy import HostModel, bytes_of, host_copy
from brim.errors import RunFolderError, first_line

TRAINING = "training.pt"
PROGRESS = "progress.json"
BEST = "best"
FINAL = "final"
AT_END = ".best-at-end"  # weights that are the best by the evaluation at the end, while they are written
BEFORE_END = ".before-end"  # what was among the best before that evaluation, for a run that goes on


Weights = nn.Module | HostModel | PartedWeights


@dataclass(frozen=True)
class Moment:
    """What a checkpoint holds, at one step. With copies on the host it can be written while the run goes on."""

    weights: PartedWeights
    tensors: dict[str, Any]
    progress: dict[str, Any]

    def size(self) -> int:
        """In bytes."""
        return self.weights.size() + bytes_of(self.tensors)

    def on_host(self) -> "Moment":
        return Moment(self.weights.on_host(), host_copy(self.tensors), self.progress)


class Checkpoints:
    """The checkpoints of one run: the newest few and the best."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder.absolute()  # a script may change directory while a run goes on
        self.keep = keep
        self._shown = folder
        self.frozen = FrozenWeights(self.folder)

    def shown(self, checkpoint: Path) -> Path:
        """Where it is, as the user named the run folder."""
        return self._shown / checkpoint.name

    def moment(self, state: TrainingState) -> Moment:
        """What a checkpoint of now is to hold."""
        return Moment(self.frozen.part(state.weights()), state.tensors(), copy.deepcopy(state.progress.to_json()))

    def save(self, state: TrainingState) -> Path:
        """Write a checkpoint of everything, named after the step."""
        return self.write(self.moment(state))

    def write(self, moment: Moment) -> Path:
        path = self.folder / step_name(moment.progress["step"])
        try:
            with WholeFolder(path) as aside:
                self._write_weights(moment.weights, aside)
                torch.save(moment.tensors, aside / TRAINING)
                (aside / PROGRESS).write_text(json.dumps(moment.progress))
        except (OSError, RuntimeError) as error:
            raise RunFolderError(f"cannot write the checkpoint {path}: {unwritten(error)}; free some space") from error
        # Newer ones are damaged, or the run would have gone on from them: they take nobody's place.
        for old in [other for other in self.all() if other.name <= path.name][: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)
        self.frozen.files.prune()
        return path

    def _write_weights(self, weights: Weights, aside: Path) -> None:
        """Weights that do not move are in their shared file before a checkpoint that refers to it has its name."""
        parted = weights if isinstance(weights, PartedWeights) else self.frozen.part(weights)
        save_weights(HostModel.holding(parted.own), aside / WEIGHTS, self.frozen.store(parted))

    def save_best(self, weights: Weights, step: int, ranked: Sequence[int] = (), is_best: bool = True) -> None:
        """Keep these weights as the best so far, or among the best; ``ranked``: the steps whose weights are kept.

        Those of a step are in ``best-STEP`` where several are kept, the best ones in ``best`` always.
        """
        if is_best:
            self._save_weights(weights, step, BEST)
        if step in ranked:
            self._save_weights(weights, step, best_name(step))
        if ranked:
            kept = {best_name(one) for one in ranked}
            for path in self.folder.glob(f"{BEST}-*"):
                if path.name not in kept:
                    shutil.rmtree(path, ignore_errors=True)
        self.frozen.files.prune()

    def save_end(self, weights: Weights, step: int, ranked: Sequence[int], is_best: bool) -> None:
        """As :meth:`save_best`, by the evaluation that only the end of a run asks for: a run that goes on has it not.

        What gives way to these weights is put aside for :meth:`go_on`, once they are written.
        """
        if step in ranked:
            self._save_weights(weights, step, best_name(step))
        if is_best:
            self._save_weights(weights, step, AT_END)
        (self.folder / BEFORE_END).mkdir(exist_ok=True)
        kept = {best_name(one) for one in ranked}
        leaving = [path for path in self.folder.glob(f"{BEST}-*") if ranked and path.name not in kept]
        leaving += [self.folder / BEST] if is_best and (self.folder / BEST).exists() else []
        for path in leaving:
            path.rename(self.folder / BEFORE_END / path.name)
        if is_best:
            (self.folder / AT_END).rename(self.folder / BEST)

    def go_on(self, progress: Progress) -> None:
        """The run goes on from ``progress``: what came of its end is no more, and the best are those before it."""
        for path in (self.folder / FINAL, former(self.folder / FINAL), self.folder / AT_END):
            shutil.rmtree(path, ignore_errors=True)
        if not (self.folder / BEFORE_END).exists():
            return
        kept = {best_name(int(step)) for step, _ in progress.ranked}
        for path in self.folder.glob(f"{BEST}-*"):
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)
        if progress.best is None:
            shutil.rmtree(self.folder / BEST, ignore_errors=True)
        for path in (self.folder / BEFORE_END).iterdir():
            shutil.rmtree(self.folder / path.name, ignore_errors=True)
            path.rename(self.folder / path.name)
        (self.folder / BEFORE_END).rmdir()
        self.frozen.files.prune()

    def save_final(self, weights: Weights, step: int) -> None:
        """Keep these weights as those that the run ended with, where neither the best nor the last ones are those."""
        self._save_weights(weights, step, FINAL)

    def _save_weights(self, weights: Weights, step: int, name: str) -> None:
        try:
            with WholeFolder(self.folder / name) as aside:
                self._write_weights(weights, aside)
                (aside / PROGRESS).write_text(json.dumps({"step": step}))
        except OSError as error:
            raise RunFolderError(f"cannot write the {name} weights: {error}; free some space") from error

    def load_best(self, model: nn.Module, step: int | None = None, is_of_run: bool = False) -> bool:
        """Put the best weights back into ``model``; False if there are none, or only those of another ``step``.

        ``is_of_run``: the model has been through the run, and has the buffers of its end.
        """
        return self._load_weights(model, BEST, step, None if is_of_run else ())

    def load_final(self, model: nn.Module) -> bool:
        """Put the weights into ``model`` that the run ended with, where they are neither the best nor the last."""
        return self._load_weights(model, FINAL)

    def gives(self, model: nn.Module | HostModel) -> bool:
        """Whether what is found here as the trained model are the weights that ``model`` has."""
        chosen = self.folder / BEST if self.has_best else self.newest_whole(lambda sentence: None)
        if chosen is None or not chosen.exists() or checkpoint_damage(chosen) is not None:
            return False
        return holds_weights(chosen / WEIGHTS, model)

    @property
    def has_best(self) -> bool:
        """Whether there are weights of a best evaluation, whatever state they are in."""
        return any(path.exists() for path in (self.folder / BEST, former(self.folder / BEST)))

    def _load_weights(
        self, model: nn.Module, name: str, step: int | None = None, formed: Collection[str] | None = ()
    ) -> bool:
        best = self.folder / name
        found = (path for path in (best, former(best)) if path.exists() and checkpoint_damage(path) is None)
        whole = next((path for path in found if step is None or _best_step(path) in (step, None)), None)
        if whole is None:
            return False
        load_weights(model, whole / WEIGHTS, formed)
        return True

    def all(self) -> list[Path]:
        """Checkpoints from oldest to newest."""
        return sorted(self.folder.glob("step-*"))

    def newest_whole(self, told: Callable[[str], None]) -> Path | None:
        """The newest checkpoint that is as it was written; ``told`` hears of newer ones that are not."""
        self._bring_back()
        for path in reversed(self.all()):
            wrong = checkpoint_damage(path)
            if wrong is None:
                return path
            told(f"the checkpoint {path} is damaged ({wrong}): the one before it is used")
        return None

    def rebuild_frozen(self, model: nn.Module | HostModel) -> bool:
        """Write frozen weights again that the newest checkpoint lacks, if the model has them; True if that helped."""
        newest = next(reversed(self.all()), None)
        if newest is None or damage(newest) is not None:
            return False
        try:
            return self.frozen.files.rebuild(newest / WEIGHTS, model.state_dict())
        except (OSError, ValueError, SafetensorError, RecursionError, RunFolderError):
            return False

    def _bring_back(self) -> None:
        """A checkpoint that was being replaced by one of the same step when the run was killed has its name again."""
        for old in self.folder.glob(".step-*.old"):
            path = old.with_name(old.name.removeprefix(".").removesuffix(".old"))
            if not path.exists():
                with suppress(OSError):  # a folder that only can be read
                    old.rename(path)

    def progress_of(self, path: Path) -> Progress:
        """Where a checkpoint stands."""
        try:
            return Progress.from_json(json.loads((path / PROGRESS).read_text()))
        except Exception as error:  # whatever json makes of bytes of anybody's
            raise RunFolderError(f"the checkpoint {path} cannot be used: {first_line(error)}") from error

    def load(self, path: Path, state: TrainingState, goes_back: bool = False) -> list[str]:
        """Continue from a checkpoint: everything in ``state`` becomes as it was. Returns what to tell the user.

        ``goes_back``: the run itself has made it, or begun from it; what it has changed since is no wish of the user's.
        """
        try:
            tensors = torch.load(path / TRAINING, map_location="cpu", weights_only=True)
            progress = self.progress_of(path)
            state.check_alike(tensors)
            check_types(path / WEIGHTS, state.model)
            load_weights(state.model, path / WEIGHTS, None if goes_back else tensors.get("formed", ()))
            return state.restore(tensors, progress, goes_back)
        except RunFolderError:
            raise
        except pickle.UnpicklingError as error:
            # Not in torch's words, which recommend weights_only=False.
            why = f"{TRAINING} is damaged, or holds objects that can run code, which brim does not load"
            raise RunFolderError(f"the checkpoint {path} cannot be used: {why}") from error
        except Exception as error:  # whatever torch makes of bytes of anybody's
            raise RunFolderError(f"the checkpoint {path} cannot be used: {first_line(error)}") from error


def step_name(step: int) -> str:
    """The name of the checkpoint of a step."""
    return f"step-{step:09d}"


def best_name(step: int) -> str:
    """The name of the weights of a step that are kept among the best."""
    return f"{BEST}-{step:09d}"


def _best_step(best: Path) -> int | None:
    """The step that best weights are of; None where they do not say, as those of earlier versions."""
    try:
        step = json.loads((best / PROGRESS).read_text())["step"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) else None
