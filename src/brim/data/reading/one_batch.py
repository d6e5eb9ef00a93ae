"""Reading one batch of a data set that has no columns: its samples, put together, in this process or in a worker.

Whatever is drawn at random while a batch is read (augmentation, dropout of tokens) is a function of the seed, the epoch
and the position of the batch, so it does not change with the number of workers, and not with resuming.
"""

import pickle
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate, get_worker_info

from brim.data.batches.batch import Batch, leaves_of, slice_batch
from brim.data.probing.state import StateWatch, brief_watch
from brim.data.randomness.seeding import Seeding, seeded
from brim.data.reading.hand_over import collate_short, to_hand_over
from brim.data.reading.shared_room import SharedRoom
from brim.errors import BrimError, DataError, a_type
from brim.sizes import bytes_of

Collate = Callable[[list[Any]], Any]


class Draw(NamedTuple):
    """What to read: which samples, and the key of whatever is drawn at random on the way."""

    indices: list[int]
    key: int


class Delivery(NamedTuple):
    """A batch, and the seconds that its samples and their putting together took.

    ``left_out``: how many of the samples asked for the data set did not give, as damaged ones of shards.
    """

    batch: Batch
    fetch: float
    collate: float
    left_out: int = 0


@dataclass(frozen=True)
class Failure:
    """Why there is no batch. An exception would lose its type on the way from a worker."""

    sentence: str
    details: str
    error: BaseException | None = None

    def error_of_user(self) -> DataError:
        failed = DataError(self.sentence)
        failed.__cause__ = self.error
        if self.error is None:
            failed.add_note(self.details)
        return failed


@dataclass(frozen=True)
class Changed:
    """Said by a worker in place of a batch: reading it changed the data set, in this worker's copy only."""

    attribute: str


class BatchReader:
    """A data set that is asked for whole batches, by a :class:`Draw`; for torch's DataLoader or a plain loop.

    ``read_many``, where given, reads all samples of a batch at once. Where ``is_watched``, a worker that finds the data
    set changed by reading says so instead of handing the batch over.
    """

    def __init__(
        self, dataset: Any, collate: Collate | None, read_many: Callable[[Tensor], Batch] | None = None
    ) -> None:
        self.dataset = dataset
        self.collate = collate or default_collate
        self.read_many = read_many
        self.is_watched = False
        self.room: SharedRoom | None = None  # for batches of workers, which look at their first ones
        self._watch: StateWatch | None = None
        self._was_handed_over = False
        self._seeding = Seeding()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, draw: Draw) -> Delivery | Failure | Changed:
        """The batch of a draw. torch's loader calls this where a data set has it."""
        in_worker = get_worker_info() is not None
        if in_worker and self.is_watched and self._watch is None:
            self._watch = brief_watch(self.dataset)
        with seeded(draw.key, restore=False) if in_worker else self._seeding.draw_from(draw.key):
            try:
                delivery = self.read(draw.indices)
                if self._watch is not None and (attribute := self._watch.changed()) is not None:
                    return Changed(attribute)
                if in_worker and not self._was_handed_over:
                    self._check_hand_over(delivery.batch)
                return delivery._replace(batch=to_hand_over(delivery.batch)) if in_worker else delivery
            except BrimError as error:
                return Failure(str(error), traceback.format_exc(), None if in_worker else error.__cause__ or error)

    def _check_hand_over(self, batch: Batch) -> None:
        """torch drops a batch that cannot be pickled, with a traceback in passing, and waits for it for ever."""
        self._check_room(batch)
        try:
            pickle.dumps([leaf for leaf in leaves_of(batch) if not isinstance(leaf, Tensor)])
        except Exception as error:
            raise DataError(
                f"a batch of {type(self.dataset).__name__} cannot be handed over from a worker process "
                f"({type(error).__name__}: {error}); let collate_fn leave that out, or use num_workers=0"
            ) from error
        self._was_handed_over = True

    def _check_room(self, held: Any) -> None:
        """Of a worker's first batch, before it lies in shared memory: what it consists of must have room there."""
        if self.room is not None and not self._was_handed_over and get_worker_info() is not None:
            self.room.check(sum(bytes_of(leaf) for leaf in leaves_of(held) if isinstance(leaf, Tensor)))

    def read(self, indices: list[int]) -> Delivery:
        began = time.perf_counter()
        if not indices:  # a rank's share of a batch with fewer samples than ranks
            one = self.read([0])
            return one._replace(batch=slice_batch(one.batch, 0, 0))
        if self.read_many is not None:
            return Delivery(self.read_many(torch.tensor(indices)), time.perf_counter() - began, 0.0)
        samples = self.samples(indices)
        self._check_room(samples)  # torch's own collating puts them there
        fetched = time.perf_counter()
        batch = self.put_together(indices, samples)
        return Delivery(batch, fetched - began, time.perf_counter() - fetched, len(indices) - len(samples))

    def samples(self, indices: list[int]) -> list[Any]:
        """The samples, or an error that names the one that cannot be read. None is read twice, unless one fails."""
        many = getattr(self.dataset, "__getitems__", None)
        if many:  # asked for as torch's loader does
            try:
                return list(many(indices))
            except BrimError:
                raise
            except Exception as error:
                raise self._unreadable(self._culprit(indices), error) from error
        found: list[Any] = []
        try:
            for index in indices:
                found.append(self.dataset[index])
        except BrimError:
            raise
        except Exception as error:
            raise self._unreadable(f"sample {indices[len(found)]}", error) from error
        return found

    def _culprit(self, indices: list[int]) -> str:
        """The first sample that fails alone as well; the training ends here, so it may be asked for once more."""
        for index in indices:
            try:
                self.dataset[index]
            except Exception:
                return f"sample {index}"
        return f"{len(indices)} samples"

    def _unreadable(self, what: str, error: Exception) -> DataError:
        return DataError(f"{what} of {type(self.dataset).__name__} cannot be read: {type(error).__name__}: {error}")

    def put_together(self, indices: list[int], samples: list[Any]) -> Batch:
        if self.collate is default_collate and types_differ(samples):
            # torch would widen or narrow the whole batch to fit one of its samples, in this batch only.
            raise DataError(
                f"samples of {type(self.dataset).__name__} differ in type: {odd_one(samples, indices)}; give them all "
                "the same"
            )
        is_handed_over = self.collate is default_collate and get_worker_info() is not None
        try:
            batch = collate_short(samples) if is_handed_over else self.collate(samples)
        except Exception as error:
            odd = odd_one(samples, indices)
            if not odd and self.collate is not default_collate:
                at = f"{len(samples)} samples of {type(self.dataset).__name__}"
                raise DataError(f"collate_fn failed for {at}: {type(error).__name__}: {error}") from error
            why = odd or f"{type(error).__name__}: {error}"
            pictures = "(pictures: torchvision's v2.ToImage() and v2.ToDtype(torch.float32, scale=True))"
            advice = "make them alike, or pass a collate_fn that pads them"
            if not odd:
                advice = (
                    f"let the data set return tensors and numbers {pictures}, or pass a collate_fn that knows these"
                )
            raise DataError(
                f"{len(samples)} samples of {type(self.dataset).__name__} cannot be put into one batch: {why}; {advice}"
            ) from error
        return batch


def types_differ(samples: list[Any]) -> bool:
    """Whether what is in the same place of several samples differs in type; asked of every batch."""
    first = samples[0]
    if isinstance(first, int | float):
        kind = type(first)
        return any(type(sample) is not kind and _kind(sample) is not _kind(first) for sample in samples)
    if isinstance(first, Tensor | np.ndarray):
        wanted = first.dtype
        return any(getattr(sample, "dtype", wanted) is not wanted and sample.dtype != wanted for sample in samples)
    try:
        if isinstance(first, dict):
            return any(types_differ([sample[key] for sample in samples]) for key in first if _may_differ(first[key]))
        if isinstance(first, tuple | list):
            places = [place for place, part in enumerate(first) if _may_differ(part)]
            return any(types_differ([sample[place] for sample in samples]) for place in places)
    except (KeyError, IndexError, TypeError):  # not even alike in structure: collating says so
        return False
    return False


def _may_differ(part: Any) -> bool:
    return isinstance(part, Tensor | np.ndarray | dict | tuple | list | int | float)


def _kind(number: Any) -> type | None:
    """numpy's numbers are of Python's kinds: torch makes the same of them."""
    return next((kind for kind in (bool, int, float) if isinstance(number, kind)), None)


def odd_one(samples: list[Any], indices: list[int]) -> str | None:
    """How the first sample that is unlike the first differs from it, in words."""
    if len(indices) != len(samples):
        return None
    wanted = _leaves(samples[0])
    for index, sample in zip(indices[1:], samples[1:], strict=True):
        found = _leaves(sample)
        if found.keys() != wanted.keys():
            return f"sample {index} has {_names(found)} where sample {indices[0]} has {_names(wanted)}"
        for name, description in found.items():
            if description != wanted[name]:
                where = f" in {name}" if name else ""
                return f"sample {index} has {description}{where}, sample {indices[0]} has {wanted[name]}"
    return None


def _names(leaves: dict[str, str]) -> str:
    return f"{len(leaves)} parts ({', '.join(name or 'itself' for name in list(leaves)[:8])})"


def _leaves(part: Any, path: str = "") -> dict[str, str]:
    """Every value of a sample by its place in it, described by what must agree within a batch."""
    if isinstance(part, dict):
        return {k: v for key, value in part.items() for k, v in _leaves(value, f"{path}[{key!r}]").items()}
    if isinstance(part, list | tuple):
        return {k: v for at, value in enumerate(part) for k, v in _leaves(value, f"{path}[{at}]").items()}
    if isinstance(part, Tensor):
        return {path: f"a tensor {tuple(part.shape)} of {str(part.dtype).removeprefix('torch.')} on {part.device}"}
    if isinstance(part, np.ndarray):
        return {path: f"an array {part.shape} of {part.dtype}"}
    return {path: f"{a_type(part)}"}
