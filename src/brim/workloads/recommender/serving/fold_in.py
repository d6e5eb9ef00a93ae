"""The vector of a person who was not there in training, from what they have watched."""

import torch
from torch import Tensor

MOST_STEPS = 30
MOST_HALVINGS = 20
CLOSE_ENOUGH = 1e-9  # of the decrease that a Newton step promises, beside the value


def fold_in(item_vectors: Tensor, watched: Tensor, mean: Tensor, precision: float) -> Tensor:
    """The most likely vector u, with items drawn by a softmax of their scores V u and u from a normal distribution.

    It minimises ``-sum over watched i of log softmax(V u)_i + precision / 2 * |u - mean|^2``, which is convex, by
    Newton's method: as large as a vector is wide, and so a matter of milliseconds.

    Args:
        item_vectors: V, a row for each item.
        watched: ids of items, at least one.
        mean: of the people who are known, or what a text says of this one.
        precision: one over the variance of people's vectors.
    """
    vectors, mean = item_vectors.double(), mean.double()
    liked, count = vectors[watched].sum(0), len(watched)
    identity = precision * torch.eye(len(mean), dtype=torch.float64, device=vectors.device)
    found = mean.clone()
    value = _value(found, vectors, liked, count, mean, precision)
    for _ in range(MOST_STEPS):
        likely = torch.softmax(vectors @ found, 0)
        expected = vectors.T @ likely
        gradient = count * expected - liked + precision * (found - mean)
        curvature = count * (vectors.T @ (likely[:, None] * vectors) - torch.outer(expected, expected)) + identity
        step = torch.linalg.solve(curvature, gradient)
        promised = float(gradient @ step)
        size = 1.0
        for _ in range(MOST_HALVINGS):  # far from the minimum a whole step may lead upwards
            lower = _value(found - size * step, vectors, liked, count, mean, precision)
            if lower <= value - 1e-4 * size * promised:
                break
            size /= 2
        else:
            break
        found, value = found - size * step, lower
        if promised <= CLOSE_ENOUGH * max(1.0, abs(value)):
            break
    return found.to(item_vectors.dtype)


def _value(found: Tensor, vectors: Tensor, liked: Tensor, count: int, mean: Tensor, precision: float) -> float:
    normaliser = torch.logsumexp(vectors @ found, 0)
    return float(count * normaliser - liked @ found + precision / 2 * (found - mean).square().sum())
