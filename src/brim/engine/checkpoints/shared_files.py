"""Weights that do not move, on disk once: files that the checkpoints of a run share, each named by its SHA-256.

``checkpoints/frozen/SUM.safetensors`` is written aside, flushed, and given its name then, before the checkpoint that
refers to it gets its own. So a kill leaves no checkpoint without its weights; at most a file that nobody refers to,
which the next save uses or removes. A checkpoint's own ``model.safetensors`` says in its metadata which tensors lie
where, relative to the folder of checkpoints, which can be moved.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from brim.engine.checkpoints.whole_folder import checksum, damage
from brim.engine.state.fingerprint import contents, has_fingerprint
from brim.errors import RunFolderError
from brim.whole_files import flush

FOLDER = "frozen"
WEIGHTS = "model.safetensors"  # in a checkpoint
KEY = "brim.frozen"  # in the metadata of a checkpoint's weights
CONTENTS = "brim.contents"  # in the metadata of a shared file: the only entry, for two may come in any order
ASIDE = ".frozen.tmp"
NAME = re.compile(r"[0-9a-f]{64}\.safetensors")  # so that a reference cannot lead out of the folder


@dataclass(frozen=True)
class Reference:
    """Where a tensor lies: the file, its name there, and what it holds (dtype, shape and SHA-256)."""

    file: str
    key: str
    content: str


class SharedFiles:
    """Those of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._whole: dict[str, dict[str, str]] = {}  # by file: the key of each content; as read or written by this run

    def has(self, reference: Reference) -> bool:
        """Whether the file is there; whether it is as it was written is looked at when it is read."""
        return (self.folder / reference.file).is_file()

    def store(self, tensors: Mapping[str, Tensor]) -> dict[str, Reference]:
        """See to it that these tensors are in shared files; returns where."""
        found = contents(tensors)
        places = self._places()
        missing = {content: name for name, content in found.items() if content not in places}  # equal ones once
        if missing:
            self._write({name: _alone(tensors[name]) for name in missing.values()}, missing)
            places = self._places()
        return {name: Reference(*places[content], content) for name, content in found.items()}

    def rebuild(self, weights: Path, own: Mapping[str, Any]) -> bool:
        """Write the files again that a checkpoint's weights lack, if ``own``, those of a model, are the very same.

        False where it has others, or where a file held more than this checkpoint needs: its name would be another.
        """
        references = references_in(weights)
        files = {one.file for one in references.values()}
        lacking = {file for file in files if wrong_with(self.folder / file) is not None}
        needed = {name: one for name, one in references.items() if one.file in lacking}
        tensors = {
            name: own[name] for name in needed if isinstance(own.get(name), Tensor) and has_fingerprint(own[name])
        }
        found = contents(tensors)
        if any(found.get(name) != one.content for name, one in needed.items()):
            return False
        for file in lacking:
            held = {one.key: (tensors[name], one.content) for name, one in needed.items() if one.file == file}
            names = {content: key for key, (_, content) in held.items()}
            self._write({key: _alone(tensor) for key, (tensor, _) in held.items()}, names)
        return bool(lacking) and all(wrong_with(self.folder / file) is None for file in lacking)

    def prune(self) -> None:
        """Remove the files that no checkpoint refers to."""
        if not self.folder.is_dir():
            return
        try:
            found = [references_in(path) for path in self.folder.parent.rglob(WEIGHTS) if path.is_file()]
        except (OSError, ValueError, SafetensorError, RecursionError):  # a damaged one may need any of them
            return
        needed = {reference.file for references in found for reference in references.values()}
        with suppress(OSError):
            for file in self.folder.iterdir():
                if file.name == ASIDE or (NAME.fullmatch(file.name) and file.name not in needed):
                    file.unlink()
            self.folder.rmdir()  # where nothing is left

    def _places(self) -> dict[str, tuple[str, str]]:
        """File and key of each content. A file that this run has not written is checked once, and left if damaged."""
        present = {path.name for path in self.folder.glob("*.safetensors") if NAME.fullmatch(path.name)}
        for name in present - self._whole.keys():
            with suppress(OSError, ValueError, SafetensorError):
                if wrong_with(self.folder / name) is None:
                    self._whole[name] = {content: key for key, content in _contents(self.folder / name).items()}
        return {
            content: (name, key)
            for name, keys in self._whole.items()
            if name in present
            for content, key in keys.items()
        }

    def _write(self, tensors: dict[str, Tensor], names: Mapping[str, str]) -> None:
        """``names``: by content."""
        aside = self.folder / ASIDE
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            keys = {key: content for content, key in names.items()}
            save_file(tensors, str(aside), {CONTENTS: json.dumps(keys, sort_keys=True)})
            flush(aside)
            name = f"{checksum(aside)}.safetensors"
            aside.replace(self.folder / name)  # one of this name was damaged
            flush(self.folder)
            self._whole[name] = dict(names)
        except (OSError, RuntimeError, ValueError, SafetensorError) as error:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
            raise RunFolderError(f"cannot write frozen weights to {self.folder}: {error}; free some space") from error


def encode_references(references: Mapping[str, Reference]) -> dict[str, str]:
    """Metadata of a checkpoint's weights that holds these; nothing where there are none."""
    if not references:
        return {}
    return {KEY: json.dumps({name: [one.file, one.key, one.content] for name, one in references.items()})}


def references_in(weights: Path) -> dict[str, Reference]:
    """What a checkpoint's weights refer to, by name; a ValueError where that cannot be brim's."""
    with safe_open(weights, framework="pt") as file:
        return decode_references(file.metadata())


def decode_references(metadata: Mapping[str, str] | None) -> dict[str, Reference]:
    """What :func:`encode_references` put into the metadata of a file; a file that says otherwise is refused."""
    if not metadata or KEY not in metadata:
        return {}
    found = json.loads(metadata[KEY])
    if not isinstance(found, dict) or not all(_is_reference(value) for value in found.values()):
        raise ValueError("what it says about frozen weights is not brim's")
    return {name: Reference(*value) for name, value in found.items()}


def read_references(weights: Path, references: Mapping[str, Reference]) -> dict[str, Tensor]:
    """The tensors that a checkpoint's weights refer to."""
    found: dict[str, Tensor] = {}
    for file in sorted({reference.file for reference in references.values()}):
        path = shared_folder(weights) / file
        if not path.is_file():
            raise ValueError(missing_sentence(path))
        with safe_open(path, framework="pt") as shared:
            for name, reference in references.items():
                if reference.file == file:
                    found[name] = shared.get_tensor(reference.key)
    return found


def checkpoint_damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, or with the shared files that it needs."""
    wrong = damage(checkpoint)
    if wrong is not None or not (checkpoint / WEIGHTS).is_file():
        return wrong
    try:
        references = references_in(checkpoint / WEIGHTS)
    except (OSError, ValueError, SafetensorError, RecursionError):  # without sums nobody could tell; reading it will
        return None
    files = sorted({reference.file for reference in references.values()})
    troubles = (wrong_with(shared_folder(checkpoint / WEIGHTS) / file) for file in files)
    return next((trouble for trouble in troubles if trouble is not None), None)


def wrong_with(shared: Path) -> str | None:
    """What is wrong with a shared file, which is named by its sum."""
    if not shared.is_file():
        return missing_sentence(shared)
    try:
        return None if checksum(shared) == shared.stem else f"its frozen weights {shared} are not what was written"
    except OSError as error:
        return f"its frozen weights {shared} cannot be read: {error.strerror}"


def missing_sentence(shared: Path) -> str:
    return f"its frozen weights {shared} are missing; they belong to the checkpoints beside them"


def shared_folder(weights: Path) -> Path:
    """Where the shared files of a checkpoint's weights are: beside the checkpoint."""
    return weights.parent.parent / FOLDER


def _contents(shared: Path) -> dict[str, str]:
    with safe_open(shared, framework="pt") as file:
        found = json.loads((file.metadata() or {}).get(CONTENTS, "{}"))
    if not isinstance(found, dict) or not all(isinstance(content, str) for content in found.values()):
        raise ValueError("no shared file of brim's")
    return found


def _is_reference(value: Any) -> bool:
    is_three_texts = isinstance(value, list) and len(value) == 3 and all(isinstance(part, str) for part in value)
    return is_three_texts and NAME.fullmatch(value[0]) is not None


def _alone(tensor: Tensor) -> Tensor:
    """In memory of its own, as safetensors wants it."""
    tensor = tensor.detach().contiguous()
    shares = tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size()
    return tensor.clone() if shares else tensor
