"""Losses over many items at once."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

LossName = Literal["bpr", "softmax", "sampled_softmax"]
OUT = -1e4  # the score of an item that is no candidate: finite, so that a row without any has no NaN in its gradient


def softmax_loss(users: Tensor, positives: Tensor, items: Tensor) -> Tensor:
    """The negative log-likelihood of each user's item among all ``items``, whose rows are vectors of one item each."""
    return cross_entropy(users @ items.T, positives)


def sampled_softmax_loss(users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """The same among a positive and the negatives drawn for it: vectors ``(users, negatives, width)``."""
    scores = torch.cat([(users * positives).sum(-1, keepdim=True), (negatives @ users[..., None])[..., 0]], 1)
    return cross_entropy(scores, torch.zeros(len(users), dtype=torch.long, device=users.device))


def hidden_items_loss(scores: Tensor, candidates: Tensor, hidden: Tensor) -> Tensor:
    """The mean over users of the negative log-likelihoods, added up, of all ``hidden`` items among ``candidates``."""
    scores = scores.masked_fill(~candidates, OUT)
    likelihoods = scores - scores.logsumexp(1, keepdim=True)
    return -torch.where(hidden, likelihoods, 0.0).sum(1).mean()
