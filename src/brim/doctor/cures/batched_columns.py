"""Batches by one index, instead of sample by sample: the same values, bit by bit."""

from typing import Any

import torch
from torch.utils.data import Subset, TensorDataset, default_collate
from torch.utils.data._utils import fetch

from brim.doctor.cures.indexed_data import gives_whole_batches, indexed_batch

COMPARED = 2  # batches, before a data set of the user's own class is trusted


def fetch_columns_at_once() -> None:
    """Fetch batches by one index where a data set consists of columns, by its type or as found out by trying."""
    one_by_one = fetch._MapDatasetFetcher.fetch
    trials: dict[int, list[bool]] = {}

    def at_once(fetcher: Any, indices: Any) -> Any:
        dataset = fetcher.dataset
        collate = getattr(fetcher.collate_fn, "collate", fetcher.collate_fn)  # the doctor's own clock is around it
        if not fetcher.auto_collation or collate is not default_collate:
            return one_by_one(fetcher, indices)  # type: ignore[no-untyped-call]
        if is_of_columns(dataset):
            return rows(dataset, list(indices))
        tried = trials.setdefault(id(dataset), [])
        if len(tried) < COMPARED and all(tried):
            tried.append(gives_whole_batches(dataset, list(indices)))
        elif all(tried):
            # The form of a batch is that of a single collated sample.
            found = indexed_batch(dataset, list(indices), default_collate([dataset[next(iter(indices))]]))
            if found is not None:
                return found
        return one_by_one(fetcher, indices)  # type: ignore[no-untyped-call]

    fetch._MapDatasetFetcher.fetch = at_once  # type: ignore[method-assign]


def rows(dataset: Any, indices: list[int]) -> list[torch.Tensor]:
    """What the samples at some places are when they are collated.

    >>> data = TensorDataset(torch.arange(6).reshape(3, 2), torch.tensor([5, 6, 7]))
    >>> rows(Subset(data, [2, 0]), [1, 0])
    [tensor([[0, 1],
            [4, 5]]), tensor([5, 7])]
    """
    while type(dataset) is Subset:
        indices = [dataset.indices[index] for index in indices]
        dataset = dataset.dataset
    places = torch.tensor(indices)
    return [column[places] for column in dataset.tensors]


def is_of_columns(dataset: Any) -> bool:
    """Whether a data set is a TensorDataset, or a Subset of one: by contract its samples are rows of tensors."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return type(dataset) is TensorDataset
