"""brim's own loader: batches whose order is a function of seed and epoch, from any position on, by the shortest way."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from brim.arguments.attributes import UnknownAttribute
from brim.arguments.choices import shorten
from brim.arguments.known import known_arguments
from brim.data.batches.batch import Batch, as_device
from brim.data.columns.column_source import ColumnSource
from brim.data.columns.column_view import view_of
from brim.data.columns.frames import plain_columns, refuse_other_frames
from brim.data.columns.half_columns import refuse_half_columns
from brim.data.randomness.order import (
    EpochOrders,
    batch_bounds,
    batch_count,
    epoch_permutation,
    rank_bounds,
    stream_key,
)
from brim.data.reading.one_batch import Collate
from brim.data.reading.samples import SampleSource, WorkerSettings
from brim.data.reading.stream import StreamSource
from brim.data.source import FeedChoice, FeedRequest, Source, choose_source, dataset_length
from brim.data.times import FeedTimes
from brim.errors import ConfigError, DataError, a_type, to_stderr
from brim.sizes import check_whole

FEEDS = ("auto", "resident", "batched", "workers", "samples")


class Loader:
    """Batches of ``data``: columns of equal length (a tensor, an array or a DataFrame, or a tuple or dict of them), a
    Dataset, a list of samples, or a stream (IterableDataset).

    Args:
        data: what is read.
        batch_size: samples of a batch.
        shuffle: another order in each epoch, a function of seed and epoch alone.
        drop_last: leave out a last, smaller batch.
        seed: of the order and of what the data set draws.
        feed: how batches are read, see below.
        device: where resident data is kept, and batches are made.
        num_workers: processes that read samples; ``"auto"`` measures how many help.
        pin_memory: page-locked batches, where there is a GPU.
        persistent_workers: keep workers between epochs.
        prefetch_factor: batches that each worker prepares ahead.
        collate_fn: makes a batch of a list of samples.
        timeout: seconds to wait for a batch of a worker; 0 for ever.
        worker_init_fn: called in each worker with its number.
        multiprocessing_context: how workers are started.

    ``feed="resident"`` keeps columns on the device and gathers rows there, a data set read
    whole once; ``"batched"`` asks the data set for many samples at once; ``"workers"`` reads samples one by one in
    ``num_workers`` processes, whose number is measured unless given; ``"samples"`` reads them one by one here.
    ``"auto"`` takes columns, and HF datasets in batches; anything else is read one by one, by workers where that is
    measured to help and reading does not change the data set. ``"batched"`` says that ``__getitem__`` takes a list of
    indices and gives a row for each: that is checked on 34 samples and refused where it differs.

    >>> loader = Loader((torch.arange(10), torch.arange(10)), batch_size=4, shuffle=False)
    >>> [x.tolist() for x, y in loader]
    [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    """

    @known_arguments
    def __init__(
        self,
        data: Any,
        batch_size: int = 32,
        *,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
        feed: str = "auto",
        device: str | torch.device | None = None,
        num_workers: int | str = "auto",
        pin_memory: bool = False,
        persistent_workers: bool = False,
        prefetch_factor: int | None = None,
        collate_fn: Collate | None = None,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
    ) -> None:
        _check(batch_size, feed, num_workers, prefetch_factor)
        _check_functions(collate_fn=collate_fn, worker_init_fn=worker_init_fn)
        _check_data(data)
        _check_flags(shuffle=shuffle, drop_last=drop_last, pin_memory=pin_memory, persistent_workers=persistent_workers)
        data = plain_columns(data)
        self.data, self.batch_size, self.shuffle, self.drop_last = data, batch_size, shuffle, drop_last
        if not isinstance(seed, int):
            raise ConfigError(f"seed={seed!r} must be a whole number")
        self.seed = seed
        self.times = FeedTimes()
        self.report: Callable[[str], None] = to_stderr
        # Settings for workers make no sense without any, and pinning none without a GPU: dropped quietly.
        settings = WorkerSettings(
            persistent=persistent_workers, pin_memory=pin_memory and torch.cuda.is_available(), timeout=timeout,
            init=worker_init_fn, context=multiprocessing_context,
        )  # fmt: skip
        workers = None if isinstance(num_workers, str) else num_workers
        self.request = FeedRequest(batch_size, feed, collate_fn, workers, prefetch_factor, settings)
        self.collate_now: Callable[[], Collate | None] | None = None  # where the user may replace it between epochs
        self._epoch = 0
        self._orders = EpochOrders()
        self._chosen: tuple[Source, FeedChoice] | None = None
        self._stream = StreamSource(data, collate_fn, self.times) if isinstance(data, IterableDataset) else None
        view = None if self._stream is not None else view_of(data)
        self._has_columns = view is not None
        if view is None:
            refuse_half_columns(data)
        # A stream has no length.
        self.samples = None if self._stream is not None else len(view or ()) or dataset_length(data)
        if device is not None:
            self.place(as_device(device))

    @property
    def source(self) -> Source:
        """Where batches come from; chosen when it is first asked for, which may take some seconds of measuring."""
        if self._chosen is None:
            self._chosen = choose_source(self.data, self.request, self.times, self.report)
            if isinstance(self._chosen[0], SampleSource):
                self._chosen[0].report = self.report
        return self._chosen[0]

    @property
    def choice(self) -> FeedChoice:
        """How the data is read, and why so."""
        if self._stream is not None:
            return FeedChoice("a stream, read in this process", "its samples have no numbers to be asked for by")
        source = self.source
        assert self._chosen is not None
        if isinstance(source, ColumnSource) and source.is_resident:
            return FeedChoice(f"resident on {source.device}", f"its {source.bytes / 1e6:,.1f} MB fit there")
        return self._chosen[1]

    @property
    def hands_out_blocks(self) -> bool:
        """Whether batches are rows of blocks on their device, which nothing writes to once they are handed out."""
        source = None if self._chosen is None else self._chosen[0]
        return isinstance(source, ColumnSource) and source.is_resident

    @property
    def block_bytes(self) -> int:
        """What the blocks that batches are rows of take on their device, beside the batch of a step and the next."""
        source = None if self._stream is not None else self.source
        return source.block_bytes(self.batch_size) if isinstance(source, ColumnSource) else 0

    def compute_on(self, device: torch.device, ranks: int = 1, ranks_here: int = 1) -> None:
        """Where the batches are used: training on the CPU leaves half of the cores to workers, and ranks on one machine
        share them."""
        if self._chosen is None:
            computes_here = device.type == "cpu"
            self.request = replace(self.request, computes_here=computes_here, ranks=ranks, ranks_here=ranks_here)
        if device.type == "cpu" and self.request.feed in ("auto", "resident"):
            self.place(device)

    def expect_writes(self, between_batches: bool) -> None:
        """Whether code that runs between batches may write to the data where nobody can notice it."""
        if self._stream is None and isinstance(self.source, ColumnSource):
            self.source.is_written_between = between_batches

    def place(self, device: torch.device, room: int | None = None) -> bool:
        """Keep the data on ``device`` from now on, if it consists of columns and fits into ``room`` bytes."""
        if self._stream is not None or self.request.feed not in ("auto", "resident"):
            return False
        source = self.source
        if not isinstance(source, ColumnSource) or (room is not None and source.bytes + self.block_bytes > room):
            return False
        source.place(device)
        return True

    if not TYPE_CHECKING:  # a type checker knows by itself what there is not

        def __getattr__(self, name):
            if name != "dataset":
                return object.__getattribute__(self, name)
            raise UnknownAttribute(
                "Loader has no attribute dataset: count the samples of what you handed over, and batches by len(loader)"
            )

    def __len__(self) -> int:
        if self.samples is None:
            raise TypeError("a stream has no length")
        return batch_count(self.samples, self.batch_size, self.drop_last)

    def __iter__(self) -> Iterator[Batch]:
        """One epoch, in the loader's own seed; each call is the next epoch."""
        epoch, self._epoch = self._epoch, self._epoch + 1
        return self.batches(self.seed, epoch)

    def batches(self, seed: int, epoch: int, start: int = 0, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """The batches of an epoch from position ``start`` on; of several ranks, each gets its share of every batch."""
        key = stream_key(seed, epoch)
        if callable(set_epoch := getattr(self.data, "set_epoch", None)):
            set_epoch(epoch)
        self._look_again()
        if self.samples is None:
            return self._read_stream(key, epoch, start, self.drop_last, rank, world)
        order = self._order(seed, epoch) if self.shuffle else None
        return self._read(order, key, start, self.drop_last, rank, world)

    def in_order(self, rank: int = 0, world: int = 1, whole: bool = False) -> Iterator[Batch]:
        """Every sample once, in the order of the data set, whatever ``shuffle`` and ``drop_last`` say.

        Of several ranks each gets its share of every batch; with ``whole`` it gets every so many-th batch instead.
        """
        if self.samples is None:
            return self._read_stream(stream_key(0, 0), 0, 0, False, rank, world)
        self._look_again()
        if whole:
            bounds = batch_bounds(self.samples, self.batch_size, 0, drop_last=False)
            return self.source.read(None, islice(bounds, rank, None, world), stream_key(0, 0))
        return self._read(None, stream_key(0, 0), 0, False, rank, world)

    def _look_again(self) -> None:
        """What the user has changed since the last epoch is read anew: columns, the length of a data set, collating."""
        if self.samples is None:
            return
        if self.collate_now is not None and (collate := self.collate_now()) is not self.request.collate:
            self.request, self._chosen = replace(self.request, collate=collate), None
        source = self.source
        if isinstance(source, ColumnSource):
            source.refresh()
            self.samples = source.samples
        elif not self._has_columns:
            self.samples = source.samples = dataset_length(self.data)

    def _order(self, seed: int, epoch: int) -> Tensor:
        """The order of an epoch. Data sets that are read best in an order of their own (shards) say so."""
        assert self.samples is not None
        own = getattr(self.data, "epoch_order", None)
        if own is not None:
            order: Tensor = own(seed, epoch)
            return order
        # Where processes are forked no thread should be at work.
        return (self._orders.order if self._has_columns else epoch_permutation)(self.samples, seed, epoch)

    def _read(
        self, order: Tensor | None, key: int, start: int, drop_last: bool, rank: int, world: int
    ) -> Iterator[Batch]:
        assert self.samples is not None
        bounds = batch_bounds(self.samples, self.batch_size, start, drop_last)
        if world > 1:
            bounds = (rank_bounds(first, stop, rank, world) for first, stop in bounds)
        return self.source.read(order, bounds, key)

    def _read_stream(self, key: int, epoch: int, start: int, drop_last: bool, rank: int, world: int) -> Iterator[Batch]:
        assert self._stream is not None
        return self._stream.batches(self.batch_size, key, epoch, start, drop_last, rank, world)


def _check_data(data: Any) -> None:
    refuse_other_frames(data)
    if isinstance(data, Loader):
        raise DataError("a Loader makes batches by itself; use it as it is, or make another of its .data")
    if isinstance(data, DataLoader):
        raise DataError(
            "a DataLoader makes batches by itself; hand it to the Trainer as it is, or its .dataset to brim.Loader"
        )
    if isinstance(data, str | bytes):
        raise DataError(f"{data[:60]!r} is a name, not data; read it first, or see brim.Shards for files")


def _check_flags(**flags: Any) -> None:
    for name, value in flags.items():
        if isinstance(value, str):  # "no" would be taken for True
            raise ConfigError(f"{name}={value!r} must be True or False")


def _check_functions(**given: Any) -> None:
    for name, value in given.items():
        if value is not None and not callable(value):
            raise ConfigError(f"{name}={shorten(value)} is no function; leave it out, or hand one over")


def _check(batch_size: int, feed: str, num_workers: int | str, prefetch_factor: int | None) -> None:
    if hasattr(batch_size, "shape"):  # the targets, as an argument of their own
        raise ConfigError(f"batch_size is {a_type(batch_size)}; data is one argument: brim.Loader((x, y), 32)")
    check_whole("batch_size", batch_size)
    if feed not in FEEDS:
        raise ConfigError(f"feed={feed!r} is none of {', '.join(FEEDS)}")
    if num_workers != "auto" and not (isinstance(num_workers, int) and num_workers >= 0):
        raise ConfigError(f"num_workers={num_workers!r} must be 'auto' or a number of processes, 0 for none")
    if prefetch_factor is not None and not (isinstance(prefetch_factor, int) and prefetch_factor >= 1):
        raise ConfigError(f"prefetch_factor={prefetch_factor!r} must be a whole number of at least 1")
    if feed == "workers" and num_workers == 0:
        raise ConfigError("feed='workers' and num_workers=0 contradict each other")
