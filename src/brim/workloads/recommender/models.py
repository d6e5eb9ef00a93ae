"""Models of the recommender that need nothing but ids, and the popularity baseline."""

import torch
from torch import Tensor, nn

from brim.workloads.recommender.interactions import Interactions
from brim.workloads.recommender.loaders import Triples


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
        users, difference = self.users(users), self.items(positives) - self.items(negatives)
        return -nn.functional.logsigmoid((users * difference).sum(-1)).mean()

    def full_scores(self, users: Tensor) -> Tensor:
        """A row of scores over all items for each user."""
        scores: Tensor = self.users(users) @ self.items.weight.T
        return scores


class Popularity(nn.Module):
    """The same ranking for everybody: how often an item occurs in the training data."""

    counts: Tensor

    def __init__(self, train_data: Interactions) -> None:
        super().__init__()
        self.register_buffer("counts", torch.bincount(train_data.items, minlength=train_data.n_items).float())

    def full_scores(self, users: Tensor) -> Tensor:
        return self.counts.repeat(len(users), 1)
