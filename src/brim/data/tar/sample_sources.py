"""Where samples to be packed come from: a folder of files, or a data set."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch.utils.data import Dataset, IterableDataset

from brim.data.randomness.order import epoch_permutation
from brim.data.tar.fields import encode
from brim.data.tar.scan import split_name
from brim.errors import ConfigError, DataError, a_type

Labels = Literal["folder"]


@dataclass(frozen=True)
class RawSample:
    """A name, and the bytes of each field."""

    key: str
    members: Mapping[str, bytes]


@dataclass(frozen=True)
class PackingSource:
    """Samples in the order in which they are packed."""

    samples: Iterable[RawSample]
    count: int | None
    classes: tuple[str, ...] = ()
    left_out: int = 0
    """Files that belong to no sample, as their names have no extension."""


def open_source(source: Any, shuffle_seed: int | None, labels: Labels | None) -> PackingSource:
    """A folder by its path, a data set with a length, or anything that gives samples one after the other."""
    if labels not in (None, "folder"):
        raise ConfigError(f"labels={labels!r} is not known; use 'folder', or leave it out")
    if isinstance(source, str | Path):
        return from_folder(Path(source).expanduser(), shuffle_seed, labels)
    if labels:
        raise ConfigError("labels='folder' needs a folder of files; let the data set give its labels itself")
    return from_dataset(source, shuffle_seed)


def from_folder(folder: Path, shuffle_seed: int | None = None, labels: Labels | None = None) -> PackingSource:
    """Files whose paths agree up to the first dot of the base name are one sample."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; name a folder of files to pack")
    groups: dict[str, dict[str, Path]] = {}
    left_out = 0
    for path in _files(folder):
        named = split_name(path.relative_to(folder).as_posix())
        if named is None:
            left_out += 1
            continue
        key, field = named
        if field in groups.setdefault(key, {}):
            raise DataError(f"{path} and {groups[key][field].name} differ in capitals only; rename one of them")
        groups[key][field] = path
    if not groups:
        raise DataError(f"{folder} holds no file with an extension, so nothing to pack")
    classes = _classes(groups, folder) if labels else ()
    labels_of = {name: number for number, name in enumerate(classes)}
    keys = sorted(groups)
    keys = [keys[position] for position in _order(len(keys), shuffle_seed)]
    return PackingSource((_from_files(key, groups[key], labels_of) for key in keys), len(keys), classes, left_out)


def _files(folder: Path) -> Iterator[Path]:
    """Every plain file below ``folder`` that is not hidden. Links may not lead out of it."""
    root = folder.resolve()

    def fail(error: OSError) -> None:
        raise DataError(f"cannot read {error.filename}: {error.strerror}") from error

    for place, folders, names in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            if Path(place, name).is_symlink():
                raise DataError(f"{Path(place, name)} is a link to a folder; put that folder in its place")
        for name in sorted(name for name in names if not name.startswith(".")):
            path = Path(place, name)
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                raise DataError(f"{path} is a link that leads out of {folder}; replace it by the file it leads to")
            if not path.is_file():
                raise DataError(f"{path} is not a file that can be read; remove it")
            yield path


def _from_files(key: str, files: Mapping[str, Path], labels: Mapping[str, int]) -> RawSample:
    try:
        members = {field: files[field].read_bytes() for field in sorted(files)}
    except OSError as error:
        raise DataError(f"cannot read {error.filename}: {error.strerror}") from error
    if labels:
        members["cls"] = str(labels[key.split("/")[0]]).encode()
    return RawSample(key, members)


def _classes(groups: Mapping[str, Mapping[str, Path]], folder: Path) -> tuple[str, ...]:
    for key, files in groups.items():
        if "/" not in key:
            raise DataError(f"labels='folder' needs files in folders named after classes; {folder / key} is in none")
        if "cls" in files:
            raise DataError(f"{files['cls']} is a label already; leave labels='folder' away")
    return tuple(sorted({key.split("/")[0] for key in groups}))


def from_dataset(source: Any, shuffle_seed: int | None = None) -> PackingSource:
    """The samples that ``source`` gives: dicts of fields, tuples, or single values."""
    if isinstance(source, Mapping) or not isinstance(source, Iterable | Dataset):
        raise DataError(f"cannot pack {a_type(source)}; hand over a folder, a data set or a list of samples")
    if isinstance(source, Sized) and hasattr(source, "__getitem__") and not isinstance(source, IterableDataset):
        order = _order(len(source), shuffle_seed)
        return PackingSource((as_raw(source[number], number) for number in order), len(source))
    if shuffle_seed is not None:
        raise ConfigError("shuffle_seed needs a data set with a length; a stream is packed in the order it comes")
    return PackingSource((as_raw(sample, number) for number, sample in enumerate(iter(source))), None)


def _order(count: int, shuffle_seed: int | None) -> Iterable[int]:
    numbers: list[int] = [] if shuffle_seed is None else epoch_permutation(count, shuffle_seed, 0).tolist()
    return range(count) if shuffle_seed is None else numbers


def as_raw(sample: Any, number: int) -> RawSample:
    """A sample as bytes. Without a ``"__key__"`` its name is its number.

    >>> as_raw(("a", 7), 3)
    RawSample(key='000000003', members={'0.txt': b'a', '1.cls': b'7'})
    """
    key = f"{number:09d}"
    if hasattr(sample, "_asdict"):
        sample = sample._asdict()
    if isinstance(sample, Mapping):
        key = str(sample.get("__key__", key))
        parts = {str(name): value for name, value in sample.items() if not str(name).startswith("__")}
    else:
        values = sample if isinstance(sample, tuple | list) else (sample,)
        parts = {
            f"{place}.bin" if isinstance(value, bytes) else str(place): value for place, value in enumerate(values)
        }
    members = dict(encode(name, value) for name, value in parts.items())
    if not members or len(members) < len(parts):
        raise DataError(f"the sample {key!r} has no fields, or two of one name; its fields are {', '.join(parts)}")
    for field in members:
        if split_name(f"{key}.{field}") != (key, field) or ".." in key.split("/") or key.startswith("/"):
            raise DataError(
                f"the sample {key!r} with the field {field!r} cannot be named in a shard: a key is a path "
                "without dots in its last part, and a field has no slash"
            )
    return RawSample(key, members)
