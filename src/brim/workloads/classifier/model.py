"""A small convolutional classifier of pictures and sounds."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from brim.errors import ConfigError
from brim.workloads.classifier.inputs import InputSpec
from brim.workloads.classifier.sample_fields import Kind
from brim.workloads.classifier.spectrogram import LogMel

DEEPEST, WIDEST, HIGHEST_RATE = 8, 4096, 1_000_000
MEAN, SPREAD = 0.45, 0.25  # of photographs, over all channels


class ConvClassifier(nn.Module):
    """A residual network of ``depth`` stages, each half as large and twice as wide as the one before it.

    It is normalised within samples (GroupNorm), so that a batch may be computed in parts of any size. Pictures come as
    bytes and become numbers here, on the device: they are a quarter as long on the way to it.

    Args:
        classes: names, or texts of numbers.
        kind: ``"picture"``, ``"sound"`` or ``"array"``.
        shape: of one sample, as its reader gives it.
        rate: samples a second, of sounds.
        dtype: of arrays, as torch names it.
        width: channels of the first stage.
        depth: stages.
        bands: of the spectrogram of sounds.
        dropout: share of the last features that is left out in training.

    >>> model = ConvClassifier(["cat", "dog"], "picture", (3, 32, 32), width=8)
    >>> model(torch.zeros(4, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        classes: Sequence[str],
        kind: Kind,
        shape: Sequence[int],
        rate: int = 0,
        dtype: str = "uint8",
        width: int = 32,
        depth: int = 3,
        bands: int = 64,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not (1 <= depth <= DEEPEST and 1 <= width <= WIDEST and 1 <= bands <= WIDEST and 0 <= rate <= HIGHEST_RATE):
            raise ConfigError(f"there is no model with width={width}, depth={depth}, bands={bands}, rate={rate}")
        self.arguments: dict[str, Any] = {
            "classes": list(classes), "kind": kind, "shape": list(shape), "rate": rate, "dtype": dtype,
            "width": width, "depth": depth, "bands": bands, "dropout": dropout,
        }  # fmt: skip
        self.classes = tuple(classes)
        self.spec = InputSpec(kind, tuple(shape), rate, getattr(torch, dtype))
        self.spectrogram = LogMel(rate, bands) if kind == "sound" else None
        widths = [width * 2**stage for stage in range(depth)]
        channels = 1 if kind == "sound" else shape[0]
        stages = [Stage(inside, outside) for inside, outside in zip([width, *widths], widths, strict=False)]
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, 2, 1, bias=False), _norm(width), nn.ReLU())
        self.stages = nn.Sequential(*stages)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(widths[-1], len(self.classes))

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.stages(self.stem(self.as_numbers(inputs)))
        logits: Tensor = self.head(self.dropout(features.mean((2, 3))))
        return logits

    def as_numbers(self, inputs: Tensor) -> Tensor:
        """Pictures as numbers around 0, sounds as spectrograms."""
        if self.spectrogram is not None:
            spectra: Tensor = self.spectrogram(inputs)
            return spectra
        # Channels last, which convolutions on CPUs and on tensor cores are faster with.
        numbers = inputs.to(self.head.weight.dtype, memory_format=torch.channels_last)
        return numbers.mul(1 / 255 / SPREAD).sub(MEAN / SPREAD) if inputs.dtype is torch.uint8 else numbers

    def example_batch(self, size: int) -> tuple[Tensor, Tensor]:
        """A batch such as training sees, for forecasts."""
        return torch.zeros(size, *self.spec.shape, dtype=self.spec.dtype), torch.zeros(size, dtype=torch.long)


class Stage(nn.Module):
    """Two convolutions beside a short way; the size is halved."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inside, outside, 3, 2, 1, bias=False), _norm(outside), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(outside, outside, 3, 1, 1, bias=False), _norm(outside))
        self.short = nn.Conv2d(inside, outside, 1)

    def forward(self, features: Tensor) -> Tensor:
        # Every other place, in the place of a stride: with fewer than 16 channels and some batch sizes, the backward
        # pass of a strided 1x1 convolution writes beyond its memory (oneDNN 3.12 in torch 2.13, two threads or more).
        every_other = features[:, :, ::2, ::2]
        return torch.relu(self.second(self.first(features)) + self.short(every_other))


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(next(groups for groups in (8, 4, 2, 1) if channels % groups == 0), channels)
