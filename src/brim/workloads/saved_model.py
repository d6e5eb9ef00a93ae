"""The trained model of a run folder."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brim.arguments.known import known_arguments
from brim.engine.checkpoints.checkpoint import BEST, Checkpoints
from brim.engine.checkpoints.shared_files import FOLDER, WEIGHTS, checkpoint_damage
from brim.engine.checkpoints.weights import load_weights
from brim.engine.checkpoints.whole_folder import is_checkpoint
from brim.engine.mistakes.model_kind import check_model
from brim.errors import BrimError, RunFolderError
from brim.record import RunFolder
from brim.record.run_folder import MODEL
from brim.sizes import bytes_of
from brim.workloads.classifier import ConvClassifier
from brim.workloads.forecaster import LSTMForecaster
from brim.workloads.recommender import BPR, GPT2RecommenderEnhanced, HistoryRecommender, LinearRecommender

MOST_UNSAVED = 1 << 26  # bytes that a model computes when it is built, such as the filters of a spectrogram
WIDER = 2  # a model is built in 32 bits, and precision="bf16-true" saves 16 of them

# A closed list: a run folder names a model of brim's, it cannot name code to run.
MODELS: dict[str, Callable[..., nn.Module]] = {
    "BPR": BPR,
    "ConvClassifier": ConvClassifier,
    "GPT2RecommenderEnhanced": GPT2RecommenderEnhanced,
    "HistoryRecommender": HistoryRecommender,
    "LSTMForecaster": LSTMForecaster,
    "LinearRecommender": LinearRecommender,
}


@known_arguments
def load(run: str | Path, model: nn.Module | None = None) -> nn.Module:
    """The trained model of a run, in eval mode on the CPU: the weights that ``fit`` left the model with.

    Those are its best ones, or its last where none were chosen, or what a callback made of them at the end. A run that
    is not over gives its best weights so far.

    Args:
        run: the run folder; or one of its checkpoints, ``RUN/checkpoints/best-000000120`` say, for the weights of that.
        model: one of yours to be filled; a run of brim's own models knows how to build them.

    Raises:
        RunFolderError: where there is no run, or none with weights.

    >>> model = load("runs/20260101-120000-recommender")  # doctest: +SKIP
    """
    if model is not None:
        check_model(model)
    if is_checkpoint(run):
        return _of_checkpoint(Path(run), model)
    folder = RunFolder.open(run)
    model = model if model is not None else _build(folder)
    checkpoints = Checkpoints(folder.checkpoints, keep=1)
    if checkpoints.load_final(model) or checkpoints.load_best(model):
        return model.eval()
    if (folder.checkpoints / BEST).exists():
        wrong = checkpoint_damage(folder.checkpoints / BEST)
        raise RunFolderError(
            f"the best weights in {folder.path} are damaged ({wrong}); go on from a checkpoint with resume"
        )
    saved = checkpoints.newest_whole(lambda sentence: warnings.warn(sentence, stacklevel=3))
    if saved is None:
        wrong = "only damaged checkpoints" if checkpoints.all() else "no checkpoint yet; let the run finish an epoch"
        raise RunFolderError(f"{folder.path} holds {wrong}")
    load_weights(model, saved / WEIGHTS)
    return model.eval()


def _of_checkpoint(path: Path, model: nn.Module | None) -> nn.Module:
    """With its frozen weights, which may be in a file that it shares with others."""
    wrong = checkpoint_damage(path)
    if wrong is not None:
        raise RunFolderError(f"the checkpoint {path} is damaged ({wrong}); name another one")
    model = model if model is not None else _build(RunFolder.open(path.absolute().parent.parent))
    load_weights(model, path / WEIGHTS)
    return model.eval()


def _build(folder: RunFolder) -> nn.Module:
    try:
        description = json.loads((folder.path / MODEL).read_text())
        build, arguments = MODELS[description["model"]], description["arguments"]
        if build in (ConvClassifier, HistoryRecommender, LSTMForecaster, LinearRecommender):
            _check_bytes(folder, build, arguments)
        else:
            _check_size(folder, **arguments)
        return build(**arguments)
    except FileNotFoundError as error:
        raise RunFolderError(
            f"{folder.path} was trained with a model of your own; build it and pass it: brim.load(run, model=...)"
        ) from error
    except BrimError:
        raise
    except Exception as error:  # of torch, on arguments of anybody's
        raise RunFolderError(f"{folder.path / MODEL} does not describe a model of brim's") from error


def _check_bytes(folder: RunFolder, build: Callable[..., nn.Module], arguments: dict[str, Any]) -> None:
    """The same refusal for a model that can be built without memory, to be measured."""
    with torch.device("meta"):
        model = build(**arguments)
        saved = sum(map(bytes_of, model.state_dict().values()))
        whole = sum(map(bytes_of, [*model.parameters(), *model.buffers()]))
    largest = WIDER * _largest_weights(folder)
    if saved > largest or whole > largest + MOST_UNSAVED:
        raise ValueError("its sizes are not those of its weights")


def _check_size(
    folder: RunFolder, n_users: int, n_items: int, embed_dim: int = 1, hidden_dim: int = 1, **_: object
) -> None:
    """Refuse a model larger than the weights that it goes with, before there is any memory for it to take."""
    largest = _largest_weights(folder)
    if min(n_users, n_items, embed_dim, hidden_dim) < 1 or max(n_users, n_items, hidden_dim) * embed_dim > largest:
        raise ValueError("its sizes are not those of its weights")


def _largest_weights(folder: RunFolder) -> int:
    """Bytes of the largest file with weights."""
    files = [*folder.checkpoints.glob(f"*/{WEIGHTS}"), *folder.checkpoints.glob(f"{FOLDER}/*.safetensors")]
    if not files:
        raise RunFolderError(f"{folder.path} holds no checkpoint yet; let the run finish an epoch")
    return max(file.stat().st_size for file in files)
