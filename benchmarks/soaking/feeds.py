"""The same samples handed over in every way that users hand them over."""

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler

import brim

if TYPE_CHECKING:
    from soaking.recipe import Recipe

OnSample = Callable[[int], None]


def columns(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 8, generator=generator)
    return x, torch.sin(x.sum(1, keepdim=True)) + 0.1 * torch.randn(samples, 1, generator=generator)


class Samples(Dataset[Any]):
    """Samples one by one; ``noise`` is drawn anew each time from all three generators that data sets use."""

    def __init__(self, x: Tensor, y: Tensor, noise: float, on_sample: OnSample | None) -> None:
        self.x, self.y, self.noise, self.on_sample = x, y, noise, on_sample

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self.on_sample is not None:
            self.on_sample(index)
        x = self.x[index]
        if self.noise:
            x = x + self.noise * (torch.randn(8) + random.random() + float(np.random.rand()))
        return x, self.y[index]


class Stream(IterableDataset[Any]):
    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[Any]:
        return (self.samples[index] for index in range(len(self.samples)))


def _tensors(recipe: "Recipe", samples: Samples) -> Any:
    return brim.Loader((samples.x, samples.y), recipe.batch_size, drop_last=recipe.drop_last)


def _plain(recipe: "Recipe", samples: Samples) -> Any:
    """Without noise, so that it may be read many samples at once."""
    samples.noise = 0.0
    return brim.Loader(samples, recipe.batch_size, drop_last=recipe.drop_last)


def _one_by_one(recipe: "Recipe", samples: Samples) -> Any:
    return brim.Loader(samples, recipe.batch_size, drop_last=recipe.drop_last, feed="samples")


def _workers(recipe: "Recipe", samples: Samples) -> Any:
    return brim.Loader(
        samples,
        recipe.batch_size,
        drop_last=recipe.drop_last,
        feed="workers",
        num_workers=recipe.workers,
        persistent_workers=recipe.seed % 2 == 0,
    )


def _torch(recipe: "Recipe", samples: Samples) -> Any:
    return DataLoader(samples, recipe.batch_size, shuffle=True, drop_last=recipe.drop_last, num_workers=recipe.workers)


def _own_sampler(recipe: "Recipe", samples: Samples) -> Any:
    sampler = WeightedRandomSampler([1.0 + (i % 3) for i in range(len(samples))], len(samples))
    return DataLoader(samples, recipe.batch_size, sampler=sampler, num_workers=recipe.workers)


def _ready(recipe: "Recipe", samples: Samples) -> Any:
    starts = range(0, len(samples), recipe.batch_size)
    return [(samples.x[at : at + recipe.batch_size], samples.y[at : at + recipe.batch_size]) for at in starts]


def _stream(recipe: "Recipe", samples: Samples) -> Any:
    return brim.Loader(Stream(samples), recipe.batch_size, drop_last=recipe.drop_last)


FEEDS: dict[str, Callable[["Recipe", Samples], Any]] = {
    "tensors": _tensors,
    "plain data set": _plain,
    "data set": _one_by_one,
    "workers": _workers,
    "torch's loader": _torch,
    "own sampler": _own_sampler,
    "ready batches": _ready,
    "stream": _stream,
}
SAMPLE_BY_SAMPLE = ("data set", "workers", "torch's loader", "own sampler", "stream")
"""Those that ask for one sample after the other, so that one of them can fail."""


def make_feed(recipe: "Recipe", on_sample: OnSample | None = None) -> Any:
    x, y = columns(recipe.samples, recipe.seed)
    if recipe.bad_sample is not None:
        y[recipe.bad_sample] = float(recipe.bad_target)
    return FEEDS[recipe.feed](recipe, Samples(x, y, noise=0.05, on_sample=on_sample))


def evaluation_data(recipe: "Recipe") -> Any:
    return brim.Loader(columns(24, recipe.seed + 1), 10)
