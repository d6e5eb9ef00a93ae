"""What any recommender is compared with: popularity, and a linear model in closed form."""

import torch
from torch import Tensor, nn

from brim.workloads.recommender.interactions import Interactions


class Popularity(nn.Module):
    """The same ranking for everybody: how often an item occurs in the training data."""

    counts: Tensor

    def __init__(self, train_data: Interactions) -> None:
        super().__init__()
        self.register_buffer("counts", torch.bincount(train_data.items, minlength=train_data.n_items).float())

    def full_scores(self, users: Tensor) -> Tensor:
        return self.counts.repeat(len(users), 1)


class EASE(nn.Module):
    """Embarrassingly shallow autoencoders (Steck, 2019): item-item weights by ridge regression, in closed form.

    With G the matrix of how often items occur together and P = (G + regularisation * I)^-1, the weights are
    B = I - P / diag(P), whose diagonal is zero; a user's scores are the sum of the rows of B of their items.
    """

    weights: Tensor
    history: Tensor

    def __init__(self, train_data: Interactions, regularisation: float = 250.0) -> None:
        super().__init__()
        history = torch.zeros(train_data.n_users, train_data.n_items)
        history[train_data.users, train_data.items] = 1.0
        together = (history.T @ history).double()
        together.diagonal().add_(regularisation)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(together))
        weights = -inverse / inverse.diagonal()
        weights.fill_diagonal_(0.0)
        self.register_buffer("weights", weights.float())
        self.register_buffer("history", history)

    def full_scores(self, users: Tensor) -> Tensor:
        return self.history[users] @ self.weights
