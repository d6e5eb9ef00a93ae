"""What the engine asks of training data, and how anything a user hands over becomes that."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from brim.data.batches.batch import Batch, batch_length
from brim.data.columns.column_view import rests_on_tensors
from brim.data.columns.columns import columns_of
from brim.data.columns.frames import plain_columns, refuse_other_frames
from brim.data.columns.half_columns import refuse_half_columns
from brim.data.garbage import gc_safe_forks
from brim.data.listed import are_samples, describe
from brim.data.loader import Loader
from brim.data.randomness.order import stream_key
from brim.data.randomness.seeding import DataGenerators
from brim.data.reading.one_batch import Collate
from brim.errors import DataError, a_type
from brim.sizes import known_length


@runtime_checkable
class Feed(Protocol):
    """Batches of an epoch from any position on; ``len()`` is the number of batches in an epoch, where it is known."""

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[Batch]: ...

    def in_order(self) -> Iterator[Batch]: ...


def as_feed(data: Any) -> Feed:
    """Adapt what the user hands over: a loader of brim's, a torch DataLoader, a Dataset, columns, or ready batches."""
    if isinstance(data, Feed):
        return data
    refuse_other_frames(data)
    _refuse_several(data)
    data = plain_columns(data)
    if isinstance(data, DataLoader):
        _refuse_shares(data)
        return _adopt(data) or ReadyBatches(data)
    if columns_of(data) is not None or isinstance(data, Dataset) or _has_numbers(data):
        return Loader(data)
    refuse_half_columns(data)
    if type(data) in (list, tuple) and are_samples(data):
        return Loader(list(data) if isinstance(data, tuple) else data)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        if isinstance(data, Iterator):
            raise DataError("an iterator can be read only once; hand over something that starts anew each epoch")
        return ReadyBatches(data)
    raise DataError(
        f"{_shown(data)} is no data; hand over a brim.Loader, a torch DataLoader, a Dataset, "
        "a tuple or dict of tensors, arrays or DataFrames, or a list of ready batches"
    )


def _refuse_several(data: Any) -> None:
    """Refuse data sets or loaders in a list, whose items would be taken for samples."""
    if type(data) in (list, tuple) and data and all(isinstance(one, Dataset | DataLoader | Loader) for one in data):
        raise DataError(
            f"these are {len(data)} data sets or loaders in {a_type(data)}; hand over one of them "
            "(random_split gives train_data and eval_data), join data sets with torch.utils.data.ConcatDataset, and "
            "give those of eval_data names: {'clean': a, 'noisy': b}"
        )


def _shown(data: Any) -> str:
    if isinstance(data, type):
        return f"the class {data.__name__} (its objects may be: {data.__name__}(...))"
    return repr(data)[:60] if data is None or isinstance(data, str | bytes | int | float) else f"{a_type(data)}"


def named_feed(data: Any, name: str) -> Feed:
    """The same as :func:`as_feed`; what cannot be read, or is known to hold nothing, is refused by its name.

    >>> named_feed([], "eval_data")
    Traceback (most recent call last):
    brim.errors.DataError: eval_data is empty: it has no batch
    """
    try:
        feed = as_feed(data)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    if batches_per_epoch(feed) == 0:
        dropped = isinstance(feed, Loader) and feed.drop_last
        why = "it is shorter than batch_size, and drop_last is set" if dropped else "it has no batch"
        raise DataError(f"{name} has no batch: {why}" if dropped else f"{name} is empty: {why}")
    return feed


def as_ordered_feed(data: Any) -> Feed:
    """As :func:`as_feed`, in the order of the data set, so that outputs can be told to belong to samples: shuffling of
    torch's is left out, and a loader that draws its samples is refused.

    >>> loader = DataLoader([5.0, 6.0, 7.0], batch_size=2, shuffle=True, generator=torch.Generator())
    >>> [batch.tolist() for batch in as_ordered_feed(loader).in_order()]
    [[5.0, 6.0], [7.0]]
    """
    if isinstance(data, DataLoader) and (sampler := _random_sampler(data)) is not None:
        _refuse_shares(data)
        adopted = _adopt(data, visits_all=_is_permutation(sampler, data.dataset))
        if adopted is None:
            raise DataError(
                f"the DataLoader draws its samples with {a_type(sampler)}, so nobody could tell which output "
                "belongs to which sample; hand over DataLoader(dataset, batch_size=...) without sampler and shuffle"
            )
        return adopted
    return as_feed(data)


def _random_sampler(loader: DataLoader[Any]) -> Any:
    """The sampler of torch's that decides at random what a loader gives, if one does."""
    batches = loader.batch_sampler
    candidates = (getattr(batches, "sampler", None), loader.sampler)
    kinds = (RandomSampler, WeightedRandomSampler, SubsetRandomSampler)
    return next((sampler for sampler in candidates if type(sampler) in kinds), None)


def _is_permutation(sampler: Any, dataset: Any) -> bool:
    return (
        type(sampler) is RandomSampler
        and not sampler.replacement
        and sampler.num_samples == len(sampler.data_source) == len(dataset)
    )


def _refuse_shares(loader: DataLoader[Any]) -> None:
    """A sampler that gives each rank its share would be cut once more, and half of the data never seen.

    Those that are not torch's are known by what they call the number of ranks; others by what ranks read from them.
    """
    batches = loader.batch_sampler
    for sampler in (getattr(batches, "sampler", None), batches, loader.sampler):
        replicas = getattr(sampler, "num_replicas", None)
        if isinstance(replicas, int) and replicas > 1:
            raise DataError(
                f"the DataLoader has {a_type(sampler)}, and brim gives each rank its share of every batch by "
                "itself; leave the sampler out (shuffle=True), with the batch_size of all ranks together"
            )


def position_after(feed: Feed, position: int, batches: int, samples: int) -> int:
    """Where in its order an epoch stands after so many batches with so many samples.

    Loaders of brim's count the places, not the samples that came: a damaged one that is left out has a place as well.
    """
    if isinstance(feed, Loader) and feed.samples is not None:
        return min(position + batches * feed.batch_size, feed.samples)
    return position + samples


def _has_numbers(data: Any) -> bool:
    """A data set by what it can do, whatever its class: an HF dataset."""
    return type(data).__module__.startswith("datasets.") and hasattr(data, "__getitem__") and hasattr(data, "__len__")


def batches_per_epoch(feed: Feed) -> int | None:
    """Number of batches in an epoch, or None where that is unknown (a stream)."""
    return known_length(feed)


def _adopt(loader: DataLoader[Any], visits_all: bool | None = None) -> Loader | None:
    """The same batches from brim's loader, whose order is a function of seed and epoch and which resumes by arithmetic.

    Only where torch's own samplers decide the order: what users sample by themselves is theirs.
    """
    batches = loader.batch_sampler
    if type(loader) is not DataLoader or type(batches) is not BatchSampler:
        return None
    # Not loader.sampler and loader.drop_last: beside a batch_sampler= torch sets these to its defaults.
    if not (_visits_all_once(batches.sampler, loader.dataset) if visits_all is None else visits_all):
        return None
    data = loader.dataset
    adopted = Loader(
        list(data) if isinstance(data, tuple) else data,  # there it is a tuple of samples; here it would be columns
        batches.batch_size,
        shuffle=type(batches.sampler) is RandomSampler,
        drop_last=batches.drop_last,
        num_workers=_workers(loader),
        pin_memory=loader.pin_memory,
        persistent_workers=loader.persistent_workers,
        prefetch_factor=loader.prefetch_factor,
        collate_fn=_collate(loader),
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
    )
    adopted.collate_now = lambda: _collate(loader)
    return adopted


def _collate(loader: DataLoader[Any]) -> Collate | None:
    """Columns are what a TensorDataset has; a tuple of tensors in a DataLoader is a tuple of samples."""
    is_default = loader.collate_fn is torch.utils.data.default_collate
    return None if is_default and rests_on_tensors(loader.dataset) else loader.collate_fn


def _workers(loader: DataLoader[Any]) -> int | str:
    """None is torch's default, so "auto"; but with a worker_init_fn, which nothing calls now, it stays at none."""
    return loader.num_workers or ("auto" if loader.worker_init_fn is None else 0)


def _visits_all_once(sampler: Any, dataset: Any) -> bool:
    if type(sampler) is SequentialSampler:
        return len(sampler.data_source) == len(dataset)
    return _is_permutation(sampler, dataset) and sampler.generator is None


_END = object()


OWNERS = ("", "sampler", "batch_sampler", "batch_sampler.sampler", "dataset")  # who may decide an order, of a loader


class ReadyBatches:
    """Somebody else's batches, read from the start of each epoch. A later position is reached by reading up to it."""

    def __init__(self, source: Iterable[Batch], told: str = "") -> None:
        self.source = source
        self._told = told

    def __len__(self) -> int:
        return len(self.source)  # type: ignore[arg-type]

    def sentence(self) -> str:
        """How the data is read."""
        if self._told:
            return self._told
        listed = type(self.source) in (list, tuple)
        return f"data: {describe(self.source) if listed else 'ready batches, as they come'}"  # type: ignore[arg-type]

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[Batch]:
        for place in OWNERS:
            set_epoch = getattr(attribute_at(self.source, place), "set_epoch", None)
            if set_epoch is not None:
                set_epoch(epoch)
        return self._read(seed, epoch, start)

    def _read(self, seed: int, epoch: int, start: int) -> Iterator[Batch]:
        if type(self.source) in (list, tuple):  # these draw nothing
            return skip_samples(iter(self.source), start)
        return skip_samples(self._seeded(stream_key(seed, epoch)), start)

    def _seeded(self, key: int) -> Iterator[Batch]:
        """Batch by batch, with random numbers of the epoch's own.

        torch's samplers draw their seed when the first batch is asked for, and data sets draw with every batch: from
        here, and not from the generators that belong to the model. So the order is a function of (seed, epoch), and a
        later position draws the same whether the batches before it were trained on or read past.
        """
        generators = DataGenerators(key)
        with generators, gc_safe_forks():
            source = iter(self.source)
        while True:
            with generators:
                batch = next(source, _END)
            if batch is _END:
                return
            yield batch

    def in_order(self) -> Iterator[Batch]:
        """For evaluations, which tell no epoch: the sampler or data set may be that of a training which goes on."""
        return self._read(seed=0, epoch=0, start=0)


def attribute_at(start: Any, dotted: str) -> Any:
    """The attribute at a dotted path, or None where the path ends early; an empty path is the object itself."""
    for name in dotted.split(".") if dotted else ():
        start = getattr(start, name, None)
    return start


def skip_samples(batches: Iterator[Batch], samples: int) -> Iterator[Batch]:
    """The batches after so many samples."""
    while samples > 0 and (batch := next(batches, _END)) is not _END:
        samples -= batch_length(batch)
    return batches
