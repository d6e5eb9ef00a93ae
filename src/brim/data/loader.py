"""brim's own loader: batches whose order is a function of seed and epoch, from any position on."""

from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from brim.data.batch import Batch, children, is_container, map_leaves
from brim.data.order import batch_bounds, batch_count, epoch_permutation, stream_key
from brim.errors import ConfigError, DataError


class Loader:
    """Batches of ``data``: a Dataset, or columns of equal length (a tensor, or a tuple or dict of tensors).

    Columns are read a batch at a time, by index; a Dataset goes through torch's DataLoader, sample by sample, with the
    worker settings given. Either way the order of samples is the same for the same seed and epoch.

    >>> loader = Loader((torch.arange(10), torch.arange(10)), batch_size=4, shuffle=False)
    >>> [x.tolist() for x, y in loader]
    [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    """

    def __init__(
        self,
        data: Any,
        batch_size: int = 32,
        *,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
        num_workers: int = 0,
        pin_memory: bool = False,
        persistent_workers: bool = False,
        prefetch_factor: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size={batch_size} must be at least 1")
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.seed = seed
        self.columns = columns_of(data) if collate_fn is None else None
        self.samples = column_length(self.columns) if self.columns is not None else dataset_length(data)
        self._epoch = 0
        self._generator = torch.Generator("cpu")
        # Settings for workers make no sense without any, and pinning none without a GPU: dropped quietly.
        workers = {"persistent_workers": persistent_workers, "prefetch_factor": prefetch_factor} if num_workers else {}
        self._settings: dict[str, Any] = {
            "dataset": data,
            "generator": self._generator,
            "collate_fn": collate_fn,
            "num_workers": num_workers,
            "pin_memory": pin_memory and torch.cuda.is_available(),
            "timeout": timeout,
            "worker_init_fn": worker_init_fn,
            "multiprocessing_context": multiprocessing_context,
            **workers,
        }
        if self.columns is None:
            self._order = _EpochOrder(self.samples, batch_size)
            self._dataloader: DataLoader[Any] = DataLoader(batch_sampler=self._order, **self._settings)

    def __len__(self) -> int:
        return batch_count(self.samples, self.batch_size, self.drop_last)

    def __iter__(self) -> Iterator[Batch]:
        """One epoch, in the loader's own seed; each call is the next epoch."""
        epoch, self._epoch = self._epoch, self._epoch + 1
        return self.batches(self.seed, epoch)

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from position ``start`` on."""
        # The workers' seed comes from here, and not from the default generator, whose draws belong to the model.
        self._generator.manual_seed(stream_key(seed, epoch) >> 1)
        order = epoch_permutation(self.samples, seed, epoch) if self.shuffle else None
        if self.columns is not None:
            return self._read_columns(order, start, self.drop_last)
        self._order.set(order, start, self.drop_last)
        return iter(self._dataloader)

    def in_order(self) -> Iterator[Batch]:
        """Every sample once, in the order of the data set, whatever ``shuffle`` and ``drop_last`` say."""
        if self.columns is not None:
            return self._read_columns(None, 0, drop_last=False)
        # A DataLoader of its own: one with persistent workers has a single iterator, which an epoch may be using.
        settings = {name: value for name, value in self._settings.items() if name != "persistent_workers"}
        return iter(DataLoader(batch_sampler=_EpochOrder(self.samples, self.batch_size), **settings))

    def _read_columns(self, order: Tensor | None, start: int, drop_last: bool) -> Iterator[Batch]:
        for first, stop in batch_bounds(self.samples, self.batch_size, start, drop_last):
            if order is None:
                # Copies: a model that changes its batch in place must not change the data.
                yield map_leaves(lambda column: column[first:stop].clone(), self.columns)  # noqa: B023 (used at once)
            else:
                index = order[first:stop]
                yield map_leaves(lambda column: column[index.to(column.device)], self.columns)  # noqa: B023


class _EpochOrder:
    """A batch sampler that is told the order before each epoch, so that one DataLoader keeps its workers."""

    def __init__(self, samples: int, batch_size: int) -> None:
        self.samples = samples
        self.batch_size = batch_size
        self.set(None, 0, drop_last=False)

    def set(self, order: Tensor | None, start: int, drop_last: bool) -> None:
        self.order, self.start, self.drop_last = order, start, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        # The order is bound now, not when the first batch is asked for: another epoch may be set up before that.
        order = torch.arange(self.samples, device="cpu") if self.order is None else self.order
        bounds = batch_bounds(self.samples, self.batch_size, self.start, self.drop_last)
        return (order[first:stop].tolist() for first, stop in bounds)


def columns_of(data: Any) -> Batch | None:
    """The columns of tensors that ``data`` consists of, or None if samples must be asked for one by one."""
    if type(data) is TensorDataset:
        return list(data.tensors)  # a list, because that is what torch's default collate makes of its samples
    if isinstance(data, Tensor):
        return data if data.dim() else None
    if isinstance(data, Dataset | list) or not is_container(data):
        return None  # a list holds ready batches: only a tuple or a dict of tensors means columns
    parts = list(children(data))
    return data if parts and all(columns_of(part) is not None for part in parts) else None


def column_length(columns: Batch) -> int:
    """The length all columns share."""
    lengths: list[int] = []
    map_leaves(lambda column: lengths.append(len(column)), columns)
    if len(set(lengths)) != 1:
        raise DataError(f"the columns have different lengths ({', '.join(map(str, lengths))}); they must be equal")
    if lengths[0] == 0:
        raise DataError("the data is empty: its columns have length 0")
    return lengths[0]


def dataset_length(data: Any) -> int:
    """The length of a map-style data set."""
    if isinstance(data, IterableDataset) or not isinstance(data, Sized) or isinstance(data, Mapping):
        raise DataError(
            f"{type(data).__name__} is neither columns of tensors nor a data set with a length; "
            "hand over an IterableDataset inside a torch DataLoader"
        )
    if len(data) == 0:
        raise DataError(f"the data set {type(data).__name__} is empty")
    return len(data)
