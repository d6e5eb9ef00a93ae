"""Other settings for the script's DataLoaders, with the same samples in the same order."""

from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data import dataloader as torch_loaders

from brim.data.garbage import gc_safe_forks
from brim.doctor.order import WITHOUT_WORKERS, Cures

# What a DataLoader takes by position after its data set.
POSITIONAL = ("batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory",
              "drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator")  # fmt: skip


def change_loaders(cures: Cures) -> bool:
    """Whether cures change settings of DataLoaders."""
    workers = (cures.num_workers, cures.persistent_workers, cures.prefetch_factor)
    return workers != (None, None, None) or cures.pinned_copies or cures.resident_data


def set_loaders(cures: Cures) -> None:
    """Every DataLoader that is made from here on has these settings.

    A stream keeps its workers: each of them would give all of it.
    """
    make = DataLoader.__init__

    def made(self: Any, dataset: Any, *arguments: Any, **options: Any) -> None:
        options = {**dict(zip(POSITIONAL, arguments, strict=False)), **options}
        if not isinstance(dataset, IterableDataset):
            options.update(new_settings(cures, options))
        elif cures.pinned_copies:
            options["pin_memory"] = True
        make(self, dataset, **options)

    DataLoader.__init__ = made  # type: ignore[method-assign]
    if cures.persistent_workers:
        _draw_as_new_workers_do()


def new_settings(cures: Cures, options: dict[str, Any]) -> dict[str, Any]:
    """What to change of a loader's settings so that they make sense together.

    >>> new_settings(Cures(num_workers=0), {"num_workers": 4, "persistent_workers": True, "prefetch_factor": 4})
    {'num_workers': 0, 'persistent_workers': False, 'prefetch_factor': None}
    """
    workers = cures.num_workers if cures.num_workers is not None else options.get("num_workers", 0)
    changed: dict[str, Any] = {"num_workers": workers}
    if cures.resident_data:
        changed["pin_memory"] = False  # what lies on a device cannot be page-locked
    elif cures.pinned_copies:
        changed["pin_memory"] = True
    if workers == 0:
        return {**changed, **{name: value for name, value in WITHOUT_WORKERS.items() if name in options}}
    if cures.persistent_workers is not None:
        changed["persistent_workers"] = cures.persistent_workers
    if cures.prefetch_factor is not None:
        changed["prefetch_factor"] = cures.prefetch_factor
    return changed


def keep_garbage_from_workers() -> None:
    """Workers never collect what cures leave of a device in the main process."""
    iterator = torch_loaders._MultiProcessingDataLoaderIter
    start = iterator.__init__

    def started(self: Any, loader: Any) -> None:
        with gc_safe_forks():
            start(self, loader)

    iterator.__init__ = started  # type: ignore[method-assign]


def _draw_as_new_workers_do() -> None:
    """Starting workers draws a number for their seeds. Workers that stay would not, and the next shuffle be another."""
    iterator = torch_loaders._MultiProcessingDataLoaderIter
    reset = iterator._reset

    def drawn(self: Any, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        reset(self, loader, first_iter)

    iterator._reset = drawn  # type: ignore[method-assign]
