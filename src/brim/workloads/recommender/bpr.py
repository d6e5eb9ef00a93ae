"""The recommender that needs nothing but ids."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from brim.workloads.recommender.loaders import Triples
from brim.workloads.recommender.serving.pretrained import fill, read_arguments, save_pretrained
from brim.workloads.recommender.serving.rankings import rank_items


class BPR(nn.Module):
    """Matrix factorisation with the pairwise loss of Rendle et al. (2009): known items should outscore unknown ones."""

    def __init__(self, n_users: int, n_items: int, embed_dim: int = 64) -> None:
        super().__init__()
        self.arguments = {"n_users": n_users, "n_items": n_items, "embed_dim": embed_dim}
        self.users = nn.Embedding(n_users, embed_dim)
        self.items = nn.Embedding(n_items, embed_dim)
        nn.init.xavier_normal_(self.users.weight)
        nn.init.xavier_normal_(self.items.weight)

    def calculate_loss(self, batch: Triples) -> Tensor:
        users, positives, negatives = batch
        items = self.items.weight.index_select(0, torch.cat([positives, negatives]))
        return pairwise_loss(self.user_vectors(users), *items.chunk(2))

    def example_batch(self, size: int) -> Triples:
        """A batch such as training sees, for forecasts."""
        return example_triples(len(self.users.weight), len(self.items.weight), size)

    def user_vectors(self, users: Tensor) -> Tensor:
        # index_select, because its backward pass is twice as fast as that of an embedding's lookup.
        return self.users.weight.index_select(0, users)

    def item_vectors(self) -> Tensor:
        return self.items.weight

    def recommend(
        self,
        user: int | None = None,
        k: int = 10,
        known: Sequence[int] | Tensor | None = None,
        *,
        watched: Sequence[int] | None = None,
    ) -> list[int]:
        """The ``k`` best items for one person, ``known`` ones left out.

        Args:
            user: one of training.
            k: how many.
            known: ids of items to leave out.
            watched: instead of ``user``, what somebody new has watched; left out too.
        """
        return rank_items(self, user, k, known, watched).ids

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model to a folder that needs nothing else."""
        save_pretrained(self, folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "BPR":
        """The model that :meth:`save_pretrained` wrote, in eval mode on the CPU."""
        model = cls(**read_arguments(folder, cls))
        fill(model, folder)
        return model


def pairwise_loss(users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """BPR's loss: the negative log-likelihood that each user prefers the positive item."""
    return -nn.functional.logsigmoid((users * (positives - negatives)).sum(-1)).mean()


def example_triples(n_users: int, n_items: int, size: int) -> Triples:
    """Users, and items they may and may not like, drawn at random."""
    return Triples(torch.randint(n_users, (size,)), torch.randint(n_items, (size,)), torch.randint(n_items, (size,)))
