"""A model's weights on disk: written without pickle, and read whatever wrappers they were saved through."""

import os
import pickle
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from brim.engine.checkpoints.shared_files import KEY, Reference, decode_references, encode_references, read_references
from brim.engine.state.extra_state import decode_extra, encode_extra, is_extra, split_extra
from brim.engine.state.fingerprint import as_bytes
from brim.engine.state.formed_buffers import buffer_shapes, empty_buffers, places_to_form
from brim.engine.state.host_copy import HostModel, host_copy
from brim.engine.state.sharded_tensors import local_part, part_like
from brim.engine.state.weight_names import bare
from brim.errors import ConfigError, RunFolderError, first_line, some_of
from brim.whole_files import written_aside

MOST_NAMES = 6
TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}  # by safetensors


def save_weights(
    model: nn.Module | HostModel, path: Path, references: Mapping[str, Reference] = MappingProxyType({})
) -> None:
    """Save a model's weights by suffix: ``.safetensors``, or ``.pt``/``.pth`` as a plain state_dict.

    Extra states of modules (``get_extra_state``) go with them: see :mod:`brim.engine.state.extra_state`. So does where
    further weights are, in a checkpoint: see :mod:`brim.engine.checkpoints.shared_files`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(path) as aside:  # so that a kill leaves the old file or the new one
            if path.suffix == ".safetensors":
                tensors, extra = split_extra(model.state_dict())
                weights, aliases = without_aliases(tensors)
                beside = {**encode_extra(extra), **encode_references(references)}
                save_file(weights, str(aside), {"format": "pt", **aliases, **beside})
            else:
                torch.save(_on_host(model.state_dict()), aside)
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        why = unwritten(error)
        raise RunFolderError(f"cannot write {path}: {why}; free some space or choose another place") from error


def unwritten(error: Exception) -> str:
    """Why a file could not be written. Of a full disk, torch's writer says only how far it came.

    >>> unwritten(RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"))
    'the disk is full, by what torch says ([enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0)'
    """
    said = first_line(error)
    return f"the disk is full, by what torch says ({said})" if "inline_container" in said else said


def _on_host(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value.cpu() if isinstance(value, Tensor) else host_copy(value) for name, value in state.items()}


def without_aliases(weights: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tied weights once, under their first name, and the other names of each; all in memory of their own.

    Weights that are parts of one block, as cuDNN lays out those of an LSTM, are not tied: each is written.

    >>> block = torch.arange(4.0)
    >>> without_aliases({"a": block[:2], "b": block[2:], "tied": block[:2]})
    ({'a': tensor([0., 1.]), 'b': tensor([2., 3.])}, {'tied': 'a'})
    """
    kept: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    places: dict[tuple[object, ...], str] = {}
    for name, tensor in weights.items():
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and place in places:
            aliases[name] = places[place]
            continue
        places[place] = name
        shares = tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size()
        kept[name] = tensor.detach().clone().contiguous() if shares else tensor.detach().contiguous()
    return kept, aliases


def load_weights(model: nn.Module, path: Path, formed: Collection[str] | None = ()) -> None:
    """Load weights into a model of the same architecture, saved by brim or through a wrapper of somebody's.

    ``formed``: the buffers that the run of these weights has made or resized, None for whichever it has; see
    :mod:`brim.engine.state.formed_buffers`.
    """
    saved = read_weights(path)
    try:
        renamed = own_names(saved, [*model.state_dict(), *empty_buffers(model)])
        places = places_to_form(model, renamed, formed)
        _check(renamed, model, {*places, *(buffer_shapes(model) if formed is None else ())})
        for place in places.values():
            place.form()
        own = model.state_dict()
        model.load_state_dict({name: part_like(tensor, own[name]) for name, tensor in renamed.items()}, strict=False)
    except (RuntimeError, ValueError) as error:
        raise RunFolderError(f"cannot load weights from {path} into {type(model).__name__}: {error}") from error


def check_types(path: Path, model: nn.Module) -> None:
    """Refuse weights in a file of another floating-point type than the model's, which loading would round unasked."""
    with safe_open(path, framework="pt") as file:
        types = {name: TYPES.get(file.get_slice(name).get_dtype()) for name in file.keys()}  # noqa: SIM118
    own = model.state_dict()
    for name, saved in own_names(types, own).items():
        here = own[name].dtype if isinstance(own.get(name), Tensor) else None
        if saved is not None and here in TYPES.values() and saved != here:
            raise ValueError(
                f"its weights are {_short(saved)} and those of this run {_short(here)} ({name}); resume with the "
                "precision that it was made with ('bf16-true' for bfloat16), or load its weights into a new run"
            )


def _short(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def holds_weights(path: Path, model: nn.Module | HostModel) -> bool:
    """Whether a file holds the very weights that a model has now."""
    tensors, extra = split_extra(model.state_dict())
    weights, aliases = without_aliases(tensors)
    with safe_open(path, framework="pt") as file:
        references = decode_references(file.metadata())
        names = {*file.keys(), *references}
        # Tied weights may be there by each of their names, where they are in a shared file.
        if not set(weights) <= names <= {*weights, *aliases}:
            return False
        if encode_extra(extra).items() - (file.metadata() or {}).items():
            return False
        own = (name for name in weights if name not in references)
        if not all(_same_bytes(file.get_tensor(name), weights[name].cpu()) for name in own):
            return False
    frozen = read_references(path, {name: one for name, one in references.items() if name in weights})
    return all(_same_bytes(tensor, weights[name].cpu()) for name, tensor in frozen.items())


def copy_weights(source: Path, target: Path) -> None:
    """A checkpoint's weights as one file that needs no other."""
    with safe_open(source, framework="pt") as file:
        metadata: dict[str, str] = dict(file.metadata() or {})
    references = decode_references(metadata)
    if not references:
        shutil.copyfile(source, target)
        return
    metadata.pop(KEY)
    weights, aliases = without_aliases({**load_file(source), **read_references(source, references)})
    save_file(weights, str(target), {**metadata, **aliases})


def _same_bytes(one: Tensor, other: Tensor) -> bool:
    """Equal to the bit."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(as_bytes(one), as_bytes(other))


def read_weights(path: Path) -> dict[str, Any]:
    """The tensors in a file, by name, and what modules keep beside them.

    A file that holds code to run is refused, and nothing of it runs.
    """
    try:
        return _load_safetensors(path) if path.suffix == ".safetensors" else _load_pickled(path)
    except pickle.UnpicklingError as error:
        # Not in torch's words, which recommend weights_only=False.
        why = "it is damaged, or holds objects that can run code, which brim does not load"
        raise RunFolderError(f"cannot load weights from {path}: {why}") from error
    except Exception as error:  # whatever torch and safetensors make of bytes of anybody's
        raise RunFolderError(f"cannot load weights from {path}: {first_line(error)}") from error


def _load_safetensors(path: Path) -> dict[str, Any]:
    weights: dict[str, Any] = load_file(path)
    with safe_open(path, framework="pt") as file:
        references = decode_references(file.metadata())
        return {**weights, **read_references(path, references), **decode_extra(file.metadata())}


def _load_pickled(path: Path) -> dict[str, Any]:
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(loaded, dict) and "state_dict" in loaded and isinstance(loaded["state_dict"], dict):
        loaded = loaded["state_dict"]  # as many trainers write it
    if not isinstance(loaded, dict) or not all(
        isinstance(name, str) and (isinstance(value, Tensor) or is_extra(name)) for name, value in loaded.items()
    ):
        raise ValueError("it holds no weights by name")
    return loaded


def own_names(saved: dict[str, Any], wanted: Iterable[str]) -> dict[str, Any]:
    """The saved weights under the model's own names.

    Names are compared without the wrappers' parts, so a real submodule called ``module`` survives: it is without them
    on both sides.

    >>> own_names({"module._orig_mod.a.weight": torch.ones(1)}, ["a.weight"]).keys()
    dict_keys(['a.weight'])
    """
    names = list(wanted)
    if set(saved) <= set(names):
        return saved
    plain = {bare(name): name for name in names}
    if len(plain) < len(names):  # two names of the model differ in such a part alone
        return saved
    return {plain.get(bare(name), name): tensor for name, tensor in saved.items()}


def _check(saved: dict[str, Any], model: nn.Module, may_differ: Collection[str]) -> None:
    """Refuse weights of another architecture, with the names and shapes that differ."""
    own = model.state_dict()
    tensors, _ = split_extra(own)
    places = {name: local_part(tensor).data_ptr() for name, tensor in tensors.items() if tensor.numel()}
    loaded = {place for name, place in places.items() if name in saved}
    # Tied weights are saved once, under their first name.
    missing = [name for name in own if name not in {*saved, *may_differ} and places.get(name) not in loaded]
    unexpected = [name for name in saved if name not in {*own, *may_differ}]
    shapes = [
        f"{name} is {tuple(saved[name].shape)} there and {tuple(tensor.shape)} here"
        for name, tensor in tensors.items()
        if not is_extra(name) and isinstance(saved.get(name), Tensor) and saved[name].shape != tensor.shape
        if name not in may_differ
    ]
    found = {"it lacks": missing, "it also has": unexpected, "of another shape:": shapes}
    wrong = [f"{what} {some_of(names, MOST_NAMES)}" for what, names in found.items() if names]
    if wrong:
        raise ValueError("; ".join(wrong))


def check_model_path(model_path: str | Path | None, writes: bool = True) -> None:
    """Refuse a place for the trained model before training, not after it. ``writes``: whether it is this rank's to."""
    if model_path is not None and Path(model_path).suffix not in (".pt", ".pth", ".safetensors"):
        raise ConfigError(f"model_path={str(model_path)!r} must end in .pth, .pt or .safetensors")
    try:
        is_folder = model_path is not None and Path(model_path).is_dir()
    except OSError as error:
        raise ConfigError(f"model_path={str(model_path)!r} cannot be used: {error.strerror}") from error
    if is_folder:
        raise ConfigError(f"model_path={str(model_path)!r} is a folder; name a file in it")
    if model_path is not None and writes:
        _check_writable(Path(model_path))


def _check_writable(path: Path) -> None:
    """Folders on the way are made when the file is written: the nearest one that is there must allow it."""
    try:
        above = next((folder for folder in path.absolute().parents if folder.exists()), path.absolute())
    except (OSError, ValueError) as error:
        raise ConfigError(f"model_path={str(path)!r} cannot be used: {error}") from error
    if not above.is_dir():
        raise ConfigError(f"model_path={str(path)!r} cannot be written: {above} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):  # the file itself is replaced, so its own rights do not matter
        raise ConfigError(f"model_path={str(path)!r} cannot be written: no permission in {above}")
    _try_to_write(path, above)


def _try_to_write(path: Path, folder: Path) -> None:
    """A file is made and removed: to root every folder seems to be writable, /proc and a full or read-only disk too."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".brim-"):
            pass
        if folder != path.absolute().parent:  # those that are not there yet, as far as one can tell
            Path(tempfile.mkdtemp(dir=folder, prefix=".brim-")).rmdir()
    except OSError as error:
        raise ConfigError(f"model_path={str(path)!r} cannot be written in {folder}: {error.strerror}") from error
