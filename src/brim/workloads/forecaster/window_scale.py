"""What is taken out of each window before the network sees it, and given back to what it predicts."""

import torch
from torch import Tensor, nn

SMALLEST = 1e-4  # of a spread; in scaled values, where 1 is the spread over the training steps
EAGER = 10.0  # times the learning rate of the other weights: a share is learned in a few hundred steps


class WindowScale(nn.Module):
    """The level and the spread of each window: the network sees how values differ from the one, in units of the other.

    A series wanders off from where it was in training, and a network that sees only this can follow (reversible
    normalisation, Kim et al., 2022). What it predicts is put on a level again: on the last value, on the mean, or, with
    both, on something between them that is learned for each step ahead. The next step of a random walk is near its last
    value, a step far ahead of a series that returns to its mean is not.

    Args:
        horizon: steps that are predicted.
        subtract_last: the level is the last value.
        reversible: the level is the mean, and the spread the standard deviation; else nothing is divided.
    """

    def __init__(self, horizon: int, subtract_last: bool = True, reversible: bool = True) -> None:
        super().__init__()
        self.subtract_last, self.reversible = subtract_last, reversible
        self.learns = subtract_last and reversible
        self.towards_mean = nn.Parameter(torch.zeros(horizon)) if self.learns else None

    def forward(self, past: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Windows (samples, steps, channels) as the network sees them, and the level and the spread that go with them.

        The level has a value for each step ahead where it is learned, (samples, horizon, channels), or else one.
        """
        last, mean = past[:, -1:], past.mean(1, keepdim=True)
        spread = past.var(1, keepdim=True, unbiased=False).add(SMALLEST**2).sqrt() if self.reversible else None
        center = mean if self.reversible else last if self.subtract_last else None
        seen = past if center is None else past - center
        level = center
        if self.towards_mean is not None:
            share = (0.5 + EAGER * self.towards_mean)[:, None]
            level = torch.lerp(last, mean, share)
        return seen if spread is None else seen / spread, level, spread


def put_back(predicted: Tensor, level: Tensor | None, spread: Tensor | None) -> Tensor:
    """What the network says, (samples, steps, channels, outputs), in the values of its window."""
    wide = predicted if spread is None else predicted * spread[..., None]
    return wide if level is None else wide + level[..., None]
