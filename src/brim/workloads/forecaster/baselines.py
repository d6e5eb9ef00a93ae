"""Forecasts that cost nothing, for the rows beside every result."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from brim.data import Loader
from brim.workloads.forecaster.data.dataset import SeriesDataset

Naive = Callable[[Tensor], Tensor]  # from windows (samples, lookback, channels) to (samples, horizon, channels)
BATCH = 1024
MOST_NUMBERS = 1 << 25  # that a fit holds at once, where targets are missing
RIDGE = 1e-4  # of the mean square of the inputs: enough for windows of a constant, too little to be seen otherwise


def naive_forecasts(dataset: SeriesDataset) -> dict[str, Naive]:
    """The rows by name: the last value, the last season where a window holds one, and a linear model in closed form."""
    horizon, season = dataset.horizon, dataset.season
    rows: dict[str, Naive] = {"repeat last": lambda past: past[:, -1:].expand(-1, horizon, -1)}
    if 1 < season <= dataset.lookback:
        rows[f"repeat season ({season})"] = lambda past: repeat_season(past, season, horizon)
    rows["linear"] = fit_linear(dataset)
    return rows


def repeat_season(past: Tensor, season: int, horizon: int) -> Tensor:
    """The last season, again and again.

    >>> repeat_season(torch.arange(4.0)[None, :, None], 2, 3).ravel()
    tensor([2., 3., 2.])
    """
    return past[:, -season:].repeat(1, -(-horizon // season), 1)[:, :horizon]


def fit_linear(dataset: SeriesDataset) -> Naive:
    """Least squares from a window to its horizon, both less the last value; one model for all channels and series.

    Each step ahead is fitted to the windows whose target is there: were windows with a gap left out, those that are
    left of a shop that is closed on Sundays would all begin on one day of the week.
    """
    at_once = max(1, MOST_NUMBERS // (dataset.lookback + 1) ** 2)
    steps = range(dataset.horizon)
    parts = [_least_squares(dataset, steps[first : first + at_once]) for first in steps[::at_once]]
    weights = torch.cat(parts, 1).float()
    return lambda past: _by_linear(past, weights)


def _least_squares(dataset: SeriesDataset, steps: range) -> Tensor:
    """The weights of some steps ahead, (lookback + 1, steps)."""
    size = dataset.lookback + 1
    gram, cross = (torch.zeros(size, width, dtype=torch.float64) for width in (size, len(steps)))
    lost: dict[int, Tensor] = {}  # the part of the windows that lack this target
    for past, target in _training_pairs(dataset):
        inputs = _less_last(past.double()).flatten(0, 1)
        ahead = target[:, steps.start : steps.stop].double()
        wanted = (ahead - past[:, -1:]).transpose(1, 2).flatten(0, 1)
        there = wanted.isfinite()
        gram += inputs.T @ inputs
        cross += inputs.T @ torch.where(there, wanted, 0.0)
        for place in torch.nonzero(~there.all(0)).flatten().tolist():
            without = inputs[~there[:, place]]
            lost[place] = lost.get(place, 0.0) + without.T @ without
    gram += RIDGE * gram.diagonal().mean().clamp_min(1e-12) * torch.eye(size, dtype=torch.float64)
    weights: Tensor = torch.linalg.solve(gram, cross)
    for place, part in lost.items():
        weights[:, place] = torch.linalg.solve(gram - part, cross[:, place])
    return weights


def _training_pairs(dataset: SeriesDataset) -> Iterator[tuple[Tensor, Tensor]]:
    loader = Loader(dataset.get_split_data("train"), BATCH, shuffle=False)
    return ((batch[0], batch[1]) for batch in loader.in_order())


def _less_last(past: Tensor) -> Tensor:
    """(samples, channels, lookback + 1): each channel less its last value, and a one for the constant."""
    moved = (past - past[:, -1:]).transpose(1, 2)
    return torch.cat([moved, torch.ones_like(moved[..., :1])], -1)


def _by_linear(past: Tensor, weights: Tensor) -> Tensor:
    return (_less_last(past) @ weights.to(past.device)).transpose(1, 2) + past[:, -1:]
