"""Data sets that can be asked for many samples at once, by a list or tensor of indices.

Only by contract: HF datasets, and what the user names (``feed="batched"``). A ``__getitem__`` that was written for one
index may do anything with many: a branch that few samples take, a cut or a norm along the wrong dimension. So it is
also tried on 34 random samples, and refused unless it gives, bit for bit, what putting them together one by one gives.
"""

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from brim.data.batches.batch import Batch, first_tensor, is_container, map_children, slice_batch
from brim.data.probing.state import StateWatch
from brim.data.randomness.generators import host_marks
from brim.data.randomness.order import GOLDEN, mix64, rows_of
from brim.data.randomness.seeding import Seeding, draw_marks, seeded
from brim.data.reading.one_batch import BatchReader
from brim.data.times import FeedTimes
from brim.errors import DataError

TRIED_SAMPLES = 16
MOST_BATCHES_PER_BLOCK = 64
SHORT_READ = 0.005  # seconds: where a block takes less, the next one is larger

INDEX_FORMS = ("tensor", "list", "array")


@dataclass(frozen=True)
class BatchedAccess:
    """How to ask: ``form`` is that of the index; ``template`` is a batch as the plain way makes it.

    A list in what is given can mean columns or samples. Which one was found out, and is not guessed from its length.
    """

    dataset: Any
    form: str
    template: Batch
    lists_are_samples: bool = False
    is_promised: bool = False  # by its class; else by the user alone, and one sample of each read is asked for twice

    def ask(self, index: Tensor) -> Batch:
        """The batch; an error where it has another number of rows than were asked for."""
        given = conform(self.template, self.dataset[self._formed(index)], self.lists_are_samples)
        rows = _row_count(given)
        if rows is not None and rows != len(index):
            raise DataError(
                f"{type(self.dataset).__name__} gave {rows:,} rows where {len(index):,} samples were asked for at "
                "once; let it return one for each index, or leave feed='batched' out"
            )
        return given

    def read(self, index: Tensor) -> Batch:
        """The same in training, where nothing may be drawn at random: one draw would serve many samples."""
        if not len(index):  # a rank's share of a batch with fewer samples than ranks
            return slice_batch(self.read(torch.tensor([0])), 0, 0)
        before = draw_marks()
        try:
            batch = self.ask(index)
        except DataError:
            raise
        except Exception as error:
            culprit = self._culprit(index)
            raise DataError(
                f"{culprit or f'{len(index)} samples'} of {type(self.dataset).__name__} cannot be read: "
                f"{type(error).__name__}: {error}"
            ) from error
        if draw_marks() != before:
            raise DataError(
                f"{type(self.dataset).__name__} draws random numbers, once for the {len(index):,} samples that it was "
                "asked for at once; leave feed='batched' out, and each sample draws its own"
            )
        if not self.is_promised:
            self._compare_one(index, batch)
        return batch

    def _compare_one(self, index: Tensor, batch: Batch) -> None:
        """One sample of the batch, asked for alone, must be the same. Which one differs from read to read."""
        if not _all_have_length(batch, len(index)):
            return
        at = int(index[0]) % len(index)
        number = int(index[at])
        alone = default_collate([self.dataset[number]])
        if not same(slice_batch(batch, at, at + 1), alone):
            raise DataError(
                f"sample {number} of {type(self.dataset).__name__} is another one when asked for among "
                f"{len(index):,} at once than when asked for alone; leave feed='batched' out, or let its __getitem__ "
                "do for each of a list of indices what it does for one"
            )

    def _formed(self, index: Tensor) -> Any:
        return index if self.form == "tensor" else index.tolist() if self.form == "list" else index.numpy()

    def _culprit(self, index: Tensor) -> str | None:
        """The first sample that fails alone as well."""
        for number in index.tolist():
            try:
                self.dataset[number]
            except Exception:
                return f"sample {number}"
        return None


def batched_access(dataset: Any, samples: int, watch: StateWatch | None = None) -> tuple[BatchedAccess, float] | None:
    """How ``dataset`` can be read in batches, and how many times faster that was; None where it cannot, or changes.

    ``watch``: of the data set as it is now, where there is one.
    """
    watch = StateWatch(dataset) if watch is None else watch
    found = _agreeing_access(dataset, samples)
    return None if found is None or watch.changed() is not None else found


def _agreeing_access(dataset: Any, samples: int) -> tuple[BatchedAccess, float] | None:
    generator = torch.Generator("cpu").manual_seed(samples)
    tries = [torch.randint(samples, (min(TRIED_SAMPLES, 2 * samples),), generator=generator) for _ in range(2)]
    tries.append(torch.tensor([samples - 1, 0]))
    reader = BatchReader(dataset, None)
    try:
        began = time.perf_counter()
        with seeded(1):
            before = host_marks()
            expected = [reader.read(index.tolist()).batch for index in tries]
            if host_marks() != before:
                return None  # what it draws for one sample after the other, it would not draw for many at once
        plain_seconds = time.perf_counter() - began
    except DataError:
        return None  # said with its index when it is read in earnest
    for form, lists_are_samples in product(INDEX_FORMS, (False, True)):
        access = BatchedAccess(dataset, form, expected[0], lists_are_samples)
        try:
            # Other random numbers than before: a data set that draws any is not read this way.
            with seeded(2), warnings.catch_warnings():
                warnings.simplefilter("error")  # what warns, such as torch.tensor(tensor), was not meant to be asked so
                before = host_marks()
                given = [access.ask(index) for index in tries]
                if host_marks() != before:
                    continue
                began = time.perf_counter()  # once more: the first time starts threads and reads files
                for index in tries:
                    access.ask(index)
            seconds = time.perf_counter() - began
        except Exception:  # whatever a data set does that was never meant to be asked so
            continue
        if all(same(one, other) for one, other in zip(given, expected, strict=True)):
            return access, plain_seconds / max(seconds, 1e-9)
    return None


def _row_count(batch: Batch) -> int | None:
    """How many samples a batch plainly has; None where that is not plain."""
    first = first_tensor(batch)
    if first is not None:
        return len(first)
    is_texts = isinstance(batch, list) and all(isinstance(part, str | bytes) for part in batch)
    return len(batch) if is_texts else None


def conform(template: Batch, given: Any, lists_are_samples: bool) -> Batch:
    """``given`` in the containers of ``template``; columns that came as lists or arrays become what collating gives."""
    if isinstance(template, Tensor):
        if isinstance(given, Tensor):
            return given
        return torch.as_tensor(given) if isinstance(given, np.ndarray) else default_collate(list(given))
    if isinstance(template, list | tuple) and all(isinstance(part, str | bytes) for part in template):
        return type(template)(given)
    if isinstance(given, list) and lists_are_samples:
        return default_collate(given)
    if isinstance(template, dict):
        return {key: conform(part, given[key], lists_are_samples) for key, part in template.items()}
    if is_container(template):
        parts = iter(given)
        made = map_children(lambda part: conform(part, next(parts), lists_are_samples), template)
        if next(parts, None) is not None:
            raise TypeError("more columns than a sample has parts")
        return made
    return given


def same(one: Batch, other: Batch) -> bool:
    """Whether two batches are equal in structure, types and bits."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.dtype != other.dtype or one.shape != other.shape or one.device != other.device:
            return False
        # By bits: NaN is not equal to itself, and 0.0 is equal to -0.0.
        return _bits(one) == _bits(other) if one.is_floating_point() or one.is_complex() else torch.equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _bits(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


class BatchedSource:
    """Batches of a data set with batched access, several at once where they are read quickly."""

    def __init__(self, access: BatchedAccess, samples: int, times: FeedTimes | None = None) -> None:
        self.access = access
        self.times = times or FeedTimes()
        self.samples = samples
        self._seeding = Seeding()
        first = first_tensor(access.template)
        self._sliceable = first is not None and _all_have_length(access.template, len(first))

    def read(self, order: Tensor | None, bounds: Iterator[tuple[int, int]], key: int = 0) -> Iterator[Batch]:
        """The batches between ``bounds`` of the samples in ``order``, drawing at random from ``key``."""
        batches = 1
        while block := list(islice(bounds, batches)):
            began = time.perf_counter()
            with self._seeding.draw_from(mix64(key + block[0][0] * GOLDEN)):
                read = self.access.read(rows_of(order, block))
            seconds = time.perf_counter() - began
            self.times.fetch += seconds
            if self._sliceable and seconds < SHORT_READ:
                batches = min(2 * batches, MOST_BATCHES_PER_BLOCK)
            start = 0
            for first, stop in block:
                end = start + stop - first
                yield read if len(block) == 1 else slice_batch(read, start, end)
                start = end


def _all_have_length(part: Batch, length: int) -> bool:
    """Whether a batch is the same as its slices put together: every leaf in it is a tensor as long as the batch."""
    if isinstance(part, Tensor):
        return part.dim() > 0 and part.shape[0] == length
    if isinstance(part, dict):
        return all(_all_have_length(value, length) for value in part.values())
    return isinstance(part, list | tuple) and all(_all_have_length(value, length) for value in part)
