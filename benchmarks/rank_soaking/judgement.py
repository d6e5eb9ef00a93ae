"""Whether ranks on which memory ran out came to what one process comes to that nothing befell."""

import math

import torch
from torch import Tensor

from rank_soaking.recipe import Recipe
from rank_soaking.training import Trained

ROUNDING = 1e-5  # of weights, by their norm
OF_NUMBERS = 1e-4  # of losses and metrics


def difference(found: Trained, expected: Trained) -> float:
    """The norm-relative difference over all weights."""
    mine, theirs = _numbers(found.weights), _numbers(expected.weights)
    return float((mine - theirs).norm() / theirs.norm())


def what_differs(recipe: Recipe, found: list[Trained], expected: Trained) -> str | None:
    """The first thing that is not as it would have been, on any rank."""
    for rank, of_rank in enumerate(found):
        apart = difference(of_rank, expected)
        if not apart <= ROUNDING:
            return f"the weights of rank {rank} differ by {apart:.2g} of their norm"
        if of_rank.steps != expected.steps:
            return f"rank {rank} made {of_rank.steps} steps, not {expected.steps}"
        numbers = {"losses": (of_rank.losses, expected.losses), "metrics": (_metrics(of_rank), _metrics(expected))}
        for name, (mine, theirs) in numbers.items():
            if not _close(mine, theirs):
                return f"the {name} of rank {rank} are {mine}, not {theirs}"
        if any(not torch.equal(tensor, found[0].weights[name]) for name, tensor in of_rank.weights.items()):
            return f"rank {rank} has other bits than the first"
    seen = sum(of_rank.seen for of_rank in found)
    if recipe.counts_add_up and seen != expected.seen:
        return f"the ranks have counted {seen} samples, not {expected.seen}: a try that failed left something behind"
    return None


def _metrics(trained: Trained) -> list[float]:
    return [*trained.evaluations, *(trained.metrics[name] for name in sorted(trained.metrics))]


def _close(mine: list[float], theirs: list[float]) -> bool:
    pairs = zip(mine, theirs, strict=False)
    return len(mine) == len(theirs) and all(math.isclose(a, b, rel_tol=OF_NUMBERS, abs_tol=1e-6) for a, b in pairs)


def _numbers(weights: dict[str, Tensor]) -> Tensor:
    return torch.cat([weights[name].double().flatten() for name in sorted(weights)])
