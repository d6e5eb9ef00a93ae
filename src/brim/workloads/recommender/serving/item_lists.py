"""The items of each user, one list behind the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from brim.workloads.recommender.interactions import Interactions


@dataclass(frozen=True)
class ItemLists:
    """``lists[user]`` is a sorted tensor of item ids, each once."""

    items: Tensor
    starts: list[int]

    @classmethod
    def of(cls, parts: Sequence[Interactions]) -> "ItemLists":
        """What users have in any of these."""
        n_users, n_items = parts[0].n_users, parts[0].n_items
        keys = torch.unique(torch.cat([part.users.cpu() * n_items + part.items.cpu() for part in parts]))
        starts = torch.searchsorted(keys, torch.arange(n_users + 1) * n_items)
        return cls(keys % n_items, starts.tolist())

    def __getitem__(self, user: int) -> Tensor:
        return self.items[self.starts[user] : self.starts[user + 1]]
