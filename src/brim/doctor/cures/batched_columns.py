"""Batches by one index, instead of sample by sample: the same values, bit by bit."""

import itertools
from typing import Any

import torch
from torch.utils.data import Subset, TensorDataset, default_collate, get_worker_info
from torch.utils.data._utils import fetch

from brim.doctor.cures.indexed_data import gives_whole_batches, indexed_batch
from brim.doctor.cures.resident_data import ResidentColumns, bytes_in_batch

COMPARED = 2  # batches, before a data set of the user's own class is trusted


def fetch_columns_at_once(resident: ResidentColumns | None = None) -> None:
    """Fetch batches by one index where a data set consists of columns, by its type or as found out by trying.

    Args:
        resident: Holds columns on a device, from which batches are gathered instead.
    """
    one_by_one = fetch._MapDatasetFetcher.fetch
    trials: dict[int, list[bool]] = {}
    epochs = itertools.count()

    def at_once(fetcher: Any, indices: Any) -> Any:
        dataset = fetcher.dataset
        collate = getattr(fetcher.collate_fn, "collate", fetcher.collate_fn)  # the doctor's own clock is around it
        if not fetcher.auto_collation or collate is not default_collate:
            return one_by_one(fetcher, indices)  # type: ignore[no-untyped-call]
        held = None if get_worker_info() is not None else resident  # a worker cannot use the device
        if is_of_columns(dataset):
            return _rows_from(held, dataset, list(indices))
        tried = trials.setdefault(id(dataset), [])
        if len(tried) < COMPARED and all(tried):
            tried.append(gives_whole_batches(dataset, list(indices)))
        elif all(tried):
            if not hasattr(fetcher, "_brim_epoch"):
                fetcher._brim_epoch = next(epochs)
            found = _indexed_from(held, dataset, fetcher._brim_epoch, list(indices))
            if found is not None:
                return found
        return one_by_one(fetcher, indices)  # type: ignore[no-untyped-call]

    fetch._MapDatasetFetcher.fetch = at_once  # type: ignore[method-assign]


def _rows_from(resident: ResidentColumns | None, dataset: Any, indices: list[int]) -> Any:
    """A batch of a data set of tensors, which count how often they were written to."""
    if resident is None:
        return rows(dataset, indices)
    whole, places = _whole(dataset, indices)
    state = tuple((id(column), column._version) for column in whole.tensors)
    found = resident.batch(
        id(dataset), state, lambda: bytes_in_batch(whole.tensors), lambda: list(whole.tensors), places
    )
    return rows(dataset, indices) if found is None else found


def _indexed_from(resident: ResidentColumns | None, dataset: Any, epoch: int, indices: list[int]) -> Any:
    """A batch of a data set of the user's own, whose columns are read anew for every epoch: it may change them."""

    def like() -> Any:
        """The form of a batch is that of a single collated sample."""
        return default_collate([dataset[indices[0]]])

    if resident is not None:
        count = len(dataset)
        found = resident.batch(
            id(dataset),
            epoch,
            lambda: count * bytes_in_batch(like()),
            lambda: indexed_batch(dataset, list(range(count)), like()),
            indices,
        )
        if found is not None:
            return found
    return indexed_batch(dataset, indices, like())


def rows(dataset: Any, indices: list[int]) -> list[torch.Tensor]:
    """What the samples at some places are when they are collated.

    >>> data = TensorDataset(torch.arange(6).reshape(3, 2), torch.tensor([5, 6, 7]))
    >>> rows(Subset(data, [2, 0]), [1, 0])
    [tensor([[0, 1],
            [4, 5]]), tensor([5, 7])]
    """
    whole, indices = _whole(dataset, indices)
    places = torch.tensor(indices)
    return [column[places] for column in whole.tensors]


def _whole(dataset: Any, indices: list[int]) -> tuple[Any, list[int]]:
    """The data set that a Subset is of, and where the samples are there."""
    while type(dataset) is Subset:
        indices = [dataset.indices[index] for index in indices]
        dataset = dataset.dataset
    return dataset, indices


def is_of_columns(dataset: Any) -> bool:
    """Whether a data set is a TensorDataset, or a Subset of one: by contract its samples are rows of tensors."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return type(dataset) is TensorDataset
