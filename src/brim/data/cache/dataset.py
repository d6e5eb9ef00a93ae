"""What a transform makes of a data set, computed once and read from memory-mapped files ever after."""

import contextlib
import errno
import hashlib
import operator
import random
import secrets
import shutil
import traceback
from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from brim.arguments.known import explained_call
from brim.data.batches.batch import Batch
from brim.data.cache.file_lock import FileLock
from brim.data.cache.fingerprint import fingerprint
from brim.data.cache.folder import CacheFolder, discard, lock_in_use, remove_left_overs_of
from brim.data.cache.packed_sample import PackedSample, pack, same_sample
from brim.data.cache.packed_store import Damaged, PackedStore, classes_in
from brim.data.cache.packed_writer import FORMAT, PackedWriter
from brim.data.cache.progress import BuildingProgress
from brim.data.randomness.generators import host_marks, process_generators
from brim.errors import ConfigError, DataError, a_type, to_stderr
from brim.sizes import parse_bytes, show_bytes

TWICE_AT_BUILDING = 16
CHECKED_AT_OPENING = 3
SAMPLES_PER_MESSAGE = 16
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Report = Callable[[str], None]


class CachedDataset(Dataset[Any]):
    """The finished samples. ``cache[7]`` is what the transform made of sample 7, with the same types.

    ``columns`` is the whole as one collated batch of tensors over the files, where all samples stack, else None. They
    are for reading: what is written into them stays in this process and is never stored. ``cache[[3, 1, 4]]``, or an
    index tensor, is the batch that torch's default collate makes of these samples, where samples stack.

    Made by :func:`cached`. Can be pickled: a worker process opens the same files.
    """

    def __init__(self, store: PackedStore, lock: FileLock) -> None:
        self.folder = store.folder
        self._store = store
        self._lock = lock  # while it is held, no other process removes the files to make room
        self.columns: Batch | None = store.columns() if store.stacks else None

    def __len__(self) -> int:
        return self._store.samples

    def __getitem__(self, index: Any) -> Any:
        if type(index) is not int:
            if isinstance(index, list | np.ndarray | Tensor) and (isinstance(index, list) or index.ndim):
                return self._batch(index)
            index = operator.index(index)
        samples = self._store.samples
        if not -samples <= index < samples:
            raise IndexError(f"sample {index} of a cache of {samples:,} samples")
        try:
            return self._store.sample(index % samples)
        except (ValueError, RuntimeError) as error:  # a text that is no longer one: the files have changed on the disk
            raise Damaged(f"sample {index} of the cache entry {self.folder} is damaged; remove the entry") from error

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """Several samples, uncollated: torch's DataLoader asks for this and collates them itself."""
        return [self[index] for index in indices]

    def _batch(self, indices: Any) -> Batch:
        if self.columns is None:
            raise TypeError("samples of this cache do not stack into a batch (texts or varying shapes); ask one by one")
        index = torch.as_tensor(indices, device="cpu")
        if index.numel() == 0:
            index = index.long()
        if index.dim() != 1 or index.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
            raise TypeError(f"a batch is asked for by a list or tensor of whole numbers, not by {indices!r:.80}")
        samples, index = self._store.samples, index.long()
        outside = index[(index < -samples) | (index >= samples)]
        if len(outside):
            raise IndexError(f"sample {int(outside[0])} of a cache of {samples:,} samples")
        index = torch.where(index < 0, index + samples, index)
        return self._store.batch(index)

    def __reduce__(self) -> Any:
        return _reopen, (self.folder, self._store.header.get("build"), self._store.classes)


@explained_call
def cached(
    dataset: Any,
    transform: Callable[[Any], Any],
    folder: str | Path,
    *,
    max_size: str | int = "20GiB",
    key: str | None = None,
    num_workers: int = 0,
    report: Report | None = None,
) -> CachedDataset:
    """``transform(sample)`` for every sample of ``dataset``, computed once and kept in ``folder``.

    The entry is found by a hash of the transform's code, of everything that it refers to, and of the data. A few
    samples are recomputed at each opening: where they differ, the entry is built again. Several processes may call this
    at once: one builds, the others wait.

    Args:
        dataset: has a length and is indexed, or consists of columns (a tensor, an array, a tuple or dict of such).
        transform: called with each sample.
        folder: where entries are kept.
        max_size: of the folder; the entries used longest ago go first.
        key: takes the place of the hash.
        num_workers: processes that compute.
        report: takes sentences about all that; they go to stderr without it.

    Raises:
        DataError: for a random transform, for samples that cannot be stored, and where ``max_size`` is too small.

    >>> import tempfile
    >>> squares = cached(torch.arange(5), lambda x: x**2, tempfile.mkdtemp())
    >>> squares[3], squares[[1, 2]]
    (tensor(9), tensor([1, 4]))
    """
    if not callable(transform) or not isinstance(folder, str | Path):
        raise ConfigError(
            f"transform is {a_type(transform)} and folder {a_type(folder)}; the order is brim.cached(dataset, "
            "transform, folder), with a function and the name of a folder"
        )
    if not isinstance(num_workers, int) or num_workers < 0:
        raise ConfigError(f"num_workers={num_workers!r} must be a whole number of at least 0")
    samples = _Samples(dataset, transform)
    folder = Path(folder).absolute()
    shelf = CacheFolder(folder, parse_bytes(max_size, "max_size"))
    say = report or to_stderr
    with process_generators():
        entry = shelf.entry(_entry_key(dataset, transform, len(samples), folder, key))
        try:
            found = _open_if_good(entry, samples)
            if isinstance(found, CachedDataset):
                return found
            folder.mkdir(parents=True, exist_ok=True)
            with shelf.building(entry, say):
                return _open_or_build(shelf, entry, samples, num_workers, say)
        except OSError as error:
            raise _unwritable(folder, error) from error


def _open_or_build(
    shelf: CacheFolder, entry: Path, samples: "_Samples", num_workers: int, say: Report
) -> CachedDataset:
    """For the one who holds the building lock: another process may have built it while we waited."""
    found = _open_if_good(entry, samples)
    if isinstance(found, CachedDataset):
        return found
    if found:
        say(f"the cache entry {entry} {found}; it is built again")
    remove_left_overs_of(entry)
    estimate = _estimate(samples)
    with shelf.half(entry) as half:
        _write(shelf, half, samples, estimate, num_workers, say)
    built = _open_if_good(entry, samples)
    if isinstance(built, CachedDataset):
        return built
    discard(entry)
    raise DataError(f"the transform is random: what was just computed {built}; cache what comes before it")


class _Samples(Dataset[Any]):
    """Each sample of the source after the transform."""

    def __init__(self, source: Any, transform: Callable[[Any], Any]) -> None:
        self.source = source
        self.transform = transform
        self.is_columns = isinstance(source, tuple | dict) and not hasattr(source, "_fields")
        self.length = _columns_length(source) if self.is_columns else _length(source)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.transform(_row(self.source, index) if self.is_columns else self.source[index])

    def packed(self, index: int) -> PackedSample:
        return pack(self.computed(index), index)

    def computed(self, index: int) -> Any:
        """A sample; what goes wrong is said with the sample's index."""
        try:
            return self[index]
        except DataError as error:
            raise DataError(f"sample {index}: {error}") from error
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise DataError(
                f"the transform failed at sample {index} with {kind} ({place.filename}, line {place.lineno})"
            ) from error


class _PackedSamples(Dataset[Any]):
    """What workers send back: bytes, or the sentence about what went wrong, which a worker cannot raise as such."""

    def __init__(self, samples: _Samples) -> None:
        self.samples = samples

    def __getitem__(self, index: int) -> PackedSample | str:
        try:
            return self.samples.packed(index)
        except DataError as error:
            return str(error)


def _as_they_are(batch: list[Any]) -> list[Any]:
    return batch


def _row(columns: Any, index: int) -> Any:
    if isinstance(columns, dict):
        return {name: _row(column, index) for name, column in columns.items()}
    return tuple(_row(column, index) for column in columns) if isinstance(columns, tuple) else columns[index]


def _length(source: Any) -> int:
    if isinstance(source, IterableDataset) or not isinstance(source, Sized):
        raise DataError(f"{a_type(source)} has no length and no order of samples, so it cannot be cached")
    if len(source) == 0:
        raise DataError(f"the data set {type(source).__name__} is empty")
    return len(source)


def _columns_length(columns: Any) -> int:
    parts = list(columns.values() if isinstance(columns, dict) else columns)
    lengths = {_columns_length(part) if isinstance(part, tuple | dict) else _length(part) for part in parts}
    if len(lengths) != 1:
        shown = ", ".join(map(str, sorted(lengths))) or "none"
        raise DataError(f"the columns have different lengths ({shown}); they must be equal")
    return lengths.pop()


def _entry_key(dataset: Any, transform: Any, samples: int, folder: Path, key: str | None) -> str:
    told = fingerprint(transform, dataset, leave_out=folder) if key is None else f"key {key}"
    return hashlib.sha256(f"format {FORMAT}, {samples} samples, {told}".encode()).hexdigest()[:32]


def _open_if_good(entry: Path, samples: _Samples) -> CachedDataset | str:
    """The entry, or what is wrong with it; nothing where it is not there."""
    while True:
        lock = lock_in_use(entry)
        if lock is None and not entry.is_dir():
            return ""
        try:
            if lock is None:
                raise Damaged("its lock is missing")
            store = PackedStore(entry)
            if store.samples != len(samples):
                raise Damaged("it has another number of samples")
            wrong = _check(store, samples)
        except Damaged as error:
            store, wrong = None, f"is damaged: {error}"
        if lock is not None and not lock.is_still(entry / "lock"):
            lock.close()
            continue  # it was replaced while we read it
        if store is None or wrong:
            return wrong
        assert lock is not None
        return CachedDataset(store, lock)


def _check(store: PackedStore, samples: _Samples) -> str:
    """Recompute a few samples, and learn the classes of named tuples from those. Returns what differs."""
    count = min(CHECKED_AT_OPENING, len(samples))
    chosen = [*store.firsts_with_classes(), *random.Random().sample(range(len(samples)), count)]
    threads = store.header.get("threads")
    with _threads(threads if type(threads) is int and 1 <= threads <= 1024 else 1):
        for index in chosen:
            sample = samples.computed(index)
            expected = pack(sample, index)
            store.classes.update(classes_in(sample))
            try:
                found = pack(store.sample(index), index)
            except KeyError:  # a named tuple's class
                return f"is out of date (sample {index} has another structure now)"
            except (ValueError, RuntimeError) as error:
                raise Damaged(f"sample {index} cannot be read") from error
            if not same_sample(found, expected):
                return f"is out of date (sample {index} comes out differently now)"
    return ""


def _estimate(samples: _Samples) -> int:
    """Bytes that all samples will take, from some that are computed twice: a random transform cannot be cached."""
    total, count = 0, min(TWICE_AT_BUILDING, len(samples))
    for index in sorted(random.Random().sample(range(len(samples)), count)):
        states = [host_marks()]
        packed = []
        for _ in range(2):
            packed.append(samples.packed(index))
            states.append(host_marks())
        # A transform that seeds the generators itself leaves them in the same state each time; one that draws does not.
        is_same = same_sample(packed[0], packed[1], rounding=0.0)
        if not is_same or (states[0] != states[1] and states[1] != states[2]):
            what = "draws random numbers for" if is_same else "gives two different results for"
            raise DataError(f"the transform is random: it {what} sample {index}; cache what comes before it")
        total += packed[0].bytes
    return total * len(samples) // count


def _write(shelf: CacheFolder, half: Path, samples: _Samples, estimate: int, num_workers: int, say: Report) -> None:
    limit, writer = shelf.max_size, PackedWriter(half)
    if estimate > limit:
        raise DataError(
            f"the cache of {len(samples):,} samples would take about {show_bytes(estimate)}, more than "
            f"max_size={show_bytes(limit)}; raise max_size=, or let the transform return less (uint8, say)"
        )
    room = min(limit, estimate + estimate // 8 + (1 << 20))
    shelf.make_room(min(limit, estimate), half)
    free = shutil.disk_usage(half).free
    if estimate > free:
        raise DataError(
            f"the cache of {len(samples):,} samples would take about {show_bytes(estimate)}, and the disk of "
            f"{shelf.path} has {show_bytes(free)} left; free some, or take another folder"
        )
    with BuildingProgress(len(samples), say) as progress:
        for done, sample in enumerate(_computed(samples, num_workers), start=1):
            writer.add(sample)
            progress.show(done)
            if writer.bytes > limit:
                raise DataError(
                    f"the cache passed max_size={show_bytes(limit)} after {done:,} of {len(samples):,} samples; "
                    "raise max_size=, or let the transform return less (uint8, say)"
                )
            if writer.bytes > room:
                room = min(limit, writer.bytes + writer.bytes // 4)
                shelf.make_room(room, half)
    writer.finish({"build": secrets.token_hex(8), "threads": 1 if num_workers else torch.get_num_threads()})


def _computed(samples: _Samples, num_workers: int) -> Iterator[PackedSample]:
    """All samples, packed, in order."""
    if num_workers == 0:
        yield from map(samples.packed, range(len(samples)))
        return
    messages: Iterable[list[PackedSample | str]] = DataLoader(
        _PackedSamples(samples),
        batch_size=SAMPLES_PER_MESSAGE,
        sampler=range(len(samples)),
        num_workers=num_workers,
        collate_fn=_as_they_are,
        generator=torch.Generator("cpu"),
    )
    for message in messages:
        for sample in message:
            if isinstance(sample, str):
                raise DataError(sample)
            yield sample


def _reopen(folder: Path, build: str, classes: dict[str, type]) -> CachedDataset:
    """In another process: the same files, or an error."""
    lock = lock_in_use(folder)
    if lock is not None:
        store = PackedStore(folder)
        if store.header.get("build") == build and lock.is_still(folder / "lock"):
            store.classes = classes
            return CachedDataset(store, lock)
    raise DataError(f"the cache entry {folder} was removed or replaced; call brim.cached again")


def _unwritable(folder: Path, error: OSError) -> DataError:
    if error.errno in NO_SPACE:
        return DataError(f"there is no space left for the cache in {folder}; free some, or take another folder")
    return DataError(f"the cache cannot be written to {folder}: {error.strerror or error}")


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Another number of threads rounds differently: check with the one that was built with."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
