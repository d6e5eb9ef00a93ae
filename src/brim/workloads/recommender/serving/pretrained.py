"""A model in a folder of its own: what it was built with, its weights, and the shape and tokenizer of its encoder."""

import json
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from brim.engine.checkpoints.weights import load_weights, save_weights
from brim.errors import DataError
from brim.record.run_folder import write_atomically

Model = TypeVar("Model", bound=nn.Module)
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def save_pretrained(model: nn.Module, folder: str | Path) -> Path:
    """Write the model to ``folder``; ``config.json`` comes last, so that what has one is whole."""
    folder, kept = Path(folder), Path(folder) / CONFIG
    arguments: Any = model.arguments
    try:
        folder.mkdir(parents=True, exist_ok=True)
        kept.unlink(missing_ok=True)
        save_weights(model, folder / WEIGHTS)
        description = {"model": type(model).__name__, "arguments": arguments}
        write_atomically(kept, json.dumps(description, indent=2) + "\n", "name another folder")
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror or error}; name another folder") from error
    return folder


def read_arguments(folder: str | Path, kind: type[nn.Module]) -> dict[str, Any]:
    """What a model of that kind was built with."""
    folder = Path(folder)
    try:
        description = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        name, arguments = description["model"], dict(description["arguments"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder} holds no model of brim's that can be read; name a folder that save_pretrained wrote"
        ) from error
    if name != kind.__name__:
        raise DataError(f"{folder} holds a {name}, not a {kind.__name__}; use {name}.from_pretrained")
    return arguments


def read_pretrained(kind: type[Model], folder: str | Path) -> Model:
    """A model that was built from its arguments alone, with its weights, in eval mode."""
    model = kind(**read_arguments(folder, kind))
    fill(model, folder)
    return model


def fill(model: nn.Module, folder: str | Path) -> None:
    """Give the model the weights of the folder, and put it into eval mode."""
    load_weights(model, Path(folder) / WEIGHTS)
    model.eval()
