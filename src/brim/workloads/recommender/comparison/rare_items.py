"""The half of the items that is rated less."""

from dataclasses import replace

import torch
from torch import Tensor

from brim.workloads.recommender.interactions import Interactions


def less_rated_half(train_data: Interactions) -> Tensor:
    """The ids of half of all items: those with the fewest training pairs, of equals the lower id first."""
    counts = torch.bincount(train_data.items, minlength=train_data.n_items)
    return torch.argsort(counts, stable=True)[: train_data.n_items // 2]


def only_items(data: Interactions, items: Tensor) -> Interactions:
    """The pairs with one of ``items``; as evaluation data, these are what there is to find among all items."""
    wanted = torch.zeros(data.n_items, dtype=torch.bool)
    wanted[items] = True
    kept = wanted[data.items]
    return replace(data, users=data.users[kept], items=data.items[kept])
