"""Losses over many items at once."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid

from brim.errors import ConfigError
from brim.workloads.recommender.loaders import Triples

LossName = Literal["bpr", "softmax", "sampled_softmax"]
NEGATIVES = 64  # drawn for each pair with "sampled_softmax"
OUT = -1e4  # the score of an item that is no candidate: finite, so that a row without any has no NaN in its gradient


def triples_loss(name: LossName, batch: Triples, users: Tensor, items_of: Callable[[Tensor | None], Tensor]) -> Tensor:
    """The loss called ``name`` of a batch.

    Args:
        name: ``"bpr"`` over one negative, ``"sampled_softmax"`` over those drawn, ``"softmax"`` over all items.
        batch: users, items they know, and items they do not: one each, or as many as were drawn.
        users: their vectors.
        items_of: gives the vectors of some items, or of all for None.
    """
    _, positives, negatives = batch
    if name == "softmax":
        return softmax_loss(users, positives, items_of(None))
    items = items_of(torch.cat([positives, negatives.flatten()]))
    if name == "bpr":
        return pairwise_loss(users, *items.chunk(2))
    return sampled_softmax_loss(users, items[: len(users)], items[len(users) :].view(*negatives.shape, -1))


def pairwise_loss(users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """BPR's loss: the negative log-likelihood that each user prefers the positive item."""
    return -logsigmoid((users * (positives - negatives)).sum(-1)).mean()


def example_triples(n_users: int, n_items: int, size: int, negatives: int | None = None) -> Triples:
    """Users, and items they may and may not like, drawn at random; ``negatives`` of them for each, in a row."""
    drawn = (size,) if negatives is None else (size, negatives)
    return Triples(torch.randint(n_users, (size,)), torch.randint(n_items, (size,)), torch.randint(n_items, drawn))


def negatives_for(name: str) -> int | None:
    """How many negatives a loader draws for each pair in a row of their own; None for one without a row."""
    if name not in get_args(LossName):
        raise ConfigError(f"loss={name!r} is unknown; use one of {', '.join(get_args(LossName))}")
    return NEGATIVES if name == "sampled_softmax" else None


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
