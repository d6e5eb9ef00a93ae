"""Other settings for the script's DataLoaders, with the same samples in the same order."""

from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data import dataloader as torch_loaders

from brim.doctor.order import Cures


def set_loaders(cures: Cures) -> None:
    """Every DataLoader that is made from here on has these settings.

    A stream is left alone: each of its workers would give all of it.
    """
    make = DataLoader.__init__

    def made(self: Any, dataset: Any, *arguments: Any, **options: Any) -> None:
        if not isinstance(dataset, IterableDataset):
            # The first positional ones are batch_size, shuffle, sampler, batch_sampler, num_workers.
            options.update(new_settings(cures, options, arguments[4] if len(arguments) > 4 else 0))
            if len(arguments) > 4:
                arguments = (*arguments[:4], options.pop("num_workers"), *arguments[5:])
        make(self, dataset, *arguments, **options)

    DataLoader.__init__ = made  # type: ignore[method-assign]
    if cures.persistent_workers:
        _draw_as_new_workers_do()


def new_settings(cures: Cures, options: dict[str, Any], positional_workers: int = 0) -> dict[str, Any]:
    """What to change of a loader's settings so that they make sense together.

    >>> new_settings(Cures(num_workers=0), {"num_workers": 4, "persistent_workers": True, "prefetch_factor": 4})
    {'num_workers': 0, 'persistent_workers': False, 'prefetch_factor': None}
    """
    workers = cures.num_workers if cures.num_workers is not None else options.get("num_workers", positional_workers)
    if workers == 0:
        changed = {"num_workers": 0, "persistent_workers": False, "prefetch_factor": None}
        if options.get("timeout"):
            changed["timeout"] = 0  # which only workers can exceed
        return changed
    changed = {"num_workers": workers}
    if cures.persistent_workers is not None:
        changed["persistent_workers"] = cures.persistent_workers
    if cures.prefetch_factor is not None:
        changed["prefetch_factor"] = cures.prefetch_factor
    return changed


def _draw_as_new_workers_do() -> None:
    """Starting workers draws a number for their seeds. Workers that stay would not, and the next shuffle be another."""
    iterator = torch_loaders._MultiProcessingDataLoaderIter
    reset = iterator._reset

    def drawn(self: Any, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        reset(self, loader, first_iter)

    iterator._reset = drawn  # type: ignore[method-assign]
