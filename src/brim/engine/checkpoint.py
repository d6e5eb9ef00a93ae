"""Checkpoints: whole or not there at all, and readable without pickle's powers.

A checkpoint is a folder: ``model.safetensors`` (tied weights once, aliases in its metadata), ``training.pt``
(optimizer, schedule, loss scale, generators; loads with ``weights_only=True``) and ``progress.json``.
"""

import json
import os
import pickle
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from brim.engine.precision import Precision
from brim.engine.progress import Progress
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

    def tensors(self) -> dict[str, Any]:
        scaler = self.precision.scaler
        return {
            "optimizer_class": type(self.optimizer).__name__,
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
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
        restore_generators(tensors["generators"], self.precision.device)
        vars(self.progress).update(vars(progress))


class Checkpoints:
    """The checkpoints of one run: the newest few and the best."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self.keep = keep

    def save(self, state: TrainingState) -> Path:
        """Write a checkpoint of everything, named after the step."""
        path = self.folder / f"step-{state.progress.step:09d}"
        with _whole_folder(path) as aside:
            save_weights(state.model, aside / WEIGHTS)
            torch.save(state.tensors(), aside / TRAINING)
            (aside / PROGRESS).write_text(json.dumps(state.progress.to_json()))
        for old in self.all()[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)
        return path

    def save_best(self, model: nn.Module) -> None:
        """Keep these weights as the best so far."""
        with _whole_folder(self.folder / BEST) as aside:
            save_weights(model, aside / WEIGHTS)

    def load_best(self, model: nn.Module) -> bool:
        """Put the best weights back into ``model``; False if no evaluation has chosen any."""
        path = self.folder / BEST / WEIGHTS
        if not path.exists():
            return False
        load_weights(model, path)
        return True

    def all(self) -> list[Path]:
        """Checkpoints from oldest to newest."""
        return sorted(self.folder.glob("step-*"))

    def load(self, path: Path, state: TrainingState) -> None:
        """Continue from a checkpoint: everything in ``state`` becomes as it was."""
        load_weights(state.model, path / WEIGHTS)
        try:
            tensors = torch.load(path / TRAINING, map_location="cpu", weights_only=True)
            progress = Progress.from_json(json.loads((path / PROGRESS).read_text()))
            state.restore(tensors, progress)
        except (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, pickle.UnpicklingError) as error:
            raise RunFolderError(f"the checkpoint {path} cannot be used: {error}") from error


def save_weights(model: nn.Module, path: Path) -> None:
    """Save a model's weights by suffix: ``.safetensors``, or ``.pt``/``.pth`` as a plain state_dict."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".safetensors":
            save_model(model, str(path))
        else:
            torch.save({name: tensor.cpu() for name, tensor in model.state_dict().items()}, path)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise RunFolderError(f"cannot write {path}: {error}; free some space or choose another place") from error


def load_weights(model: nn.Module, path: Path) -> None:
    """Load weights that :func:`save_weights` wrote into a model of the same architecture."""
    try:
        if path.suffix == ".safetensors":
            load_model(model, str(path))
        else:
            model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except (OSError, EOFError, SafetensorError, RuntimeError, pickle.UnpicklingError) as error:
        raise RunFolderError(f"cannot load weights from {path} into {type(model).__name__}: {error}") from error


class _whole_folder:
    """Fill a folder aside, flush it to disk, and give it its name only then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.aside = path.with_name(f".{path.name}.tmp")

    def __enter__(self) -> Path:
        shutil.rmtree(self.aside, ignore_errors=True)
        self.aside.mkdir(parents=True)
        return self.aside

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            shutil.rmtree(self.aside, ignore_errors=True)
            return
        for file in self.aside.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        if self.path.exists():  # a rename does not replace a folder that holds something
            shutil.rmtree(self.path)
        self.aside.rename(self.path)


def generator_states(device: torch.device) -> dict[str, Any]:
    """The random generators a step may draw from."""
    version, words, gauss = random.getstate()
    kind, numpy_words, *rest = np.random.get_state(legacy=True)
    states: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": [version, list(words), gauss],
        "numpy": [str(kind), np.asarray(numpy_words).tolist(), *rest],
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_generators(states: dict[str, Any], device: torch.device) -> None:
    torch.set_rng_state(states["torch"])
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    kind, numpy_words, *rest = states["numpy"]
    np.random.set_state((kind, np.array(numpy_words, dtype=np.uint32), *rest))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
