"""One loader of a script's: how it is set, and what has come out of it."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, default_collate

from brim.doctor.batch_contents import samples_in, tensors_of
from brim.doctor.cures.batched_columns import is_of_columns
from brim.doctor.observation import LoaderSeen
from brim.doctor.watching.feed.batch_costs import LoaderCost
from brim.doctor.watching.feed.padding import padded_share
from brim.sizes import known_length

KEPT = 4  # batches that are handed out again


class WatchedLoader:
    """What is known of a loader, also of one that a script makes anew in every epoch.

    Args:
        settings: Of a DataLoader; None for a feed of brim's.
        place: The number under which its batches are timed.
        length: Batches of an epoch, where it is known.
    """

    def __init__(self, settings: LoaderSeen | None, place: int, length: int = 0) -> None:
        self.settings, self.place, self.length = settings, place, length
        self.made = 1  # how often the script has made it
        self.backwards = 0  # passes on its batches
        self.beside = 0  # passes on batches of another, taken after one of its
        self.batches = self.samples = self.worker_starts = 0
        self.bytes = self.tensors = 0
        self.shapes: set[tuple[Any, ...]] = set()
        self.kept: deque[Any] = deque(maxlen=KEPT)
        self.costs_before = LoaderCost()
        self.waits, self.waited = 0, 0.0  # for batches of workers that were there already
        self.waited_before = 0.0
        self.epoch: Callable[[], Any] = lambda: None  # the iterator of its latest epoch, while that lives
        self.batched_seconds: float | None = None
        self.was_probed = False

    def take(self, batch: Any) -> int:
        """A batch was handed out; how many samples it has."""
        samples = samples_in(batch)
        self.batches += 1
        self.samples += samples
        tensors = list(tensors_of(batch))
        self.bytes, self.tensors = sum(t.nbytes for t in tensors), len(tensors)
        # The last batch of an epoch is shorter: only the rest of the shape counts.
        self.shapes.add(tuple(tuple(t.shape[1:]) for t in tensors))
        if self.batches <= KEPT or self.batches % 8 == 0:
            self.kept.append(batch)
        return samples

    def begin_window(self, costs: LoaderCost) -> None:
        """From here on, counts are those of the window that is reported."""
        self.batches = self.samples = self.worker_starts = 0
        self.made = 1
        self.shapes.clear()
        self.costs_before, self.waited_before = costs, self.waited

    def seen(self, costs: LoaderCost) -> LoaderSeen:
        """What there is to tell of a DataLoader, whose batches have cost so much up to now."""
        assert self.settings is not None
        cost = costs.since(self.costs_before)
        made = cost.batches
        return replace(
            self.settings,
            trains=self.backwards > 0,
            made=self.made,
            batches=self.batches,
            waited=self.waited - self.waited_before,
            samples=self.samples,
            batch_bytes=self.bytes,
            batch_tensors=self.tensors,
            shapes=max(1, len(self.shapes)),
            padding=padded_share(self.kept),
            worker_starts=self.worker_starts,
            make_seconds=cost.seconds / made if made else None,
            make_cpu_seconds=cost.cpu / made if made else None,
            make_running_seconds=cost.running / made if made else None,
            collate_seconds=cost.collate / made if made else None,
            batched_seconds=self.batched_seconds,
            was_probed=self.was_probed,
            files_opened=cost.files / made if made else 0.0,
        )


def settings_of(loader: DataLoader[Any], line: str) -> LoaderSeen:
    """How a DataLoader is set, and what it reads."""
    dataset, context = loader.dataset, loader.multiprocessing_context
    return LoaderSeen(
        dataset=type(dataset).__name__,
        length=known_length(dataset),
        batch_size=loader.batch_size or getattr(loader.batch_sampler, "batch_size", None),
        num_workers=loader.num_workers,
        persistent_workers=loader.persistent_workers,
        prefetch_factor=loader.prefetch_factor,
        pin_memory=loader.pin_memory,
        default_collate=loader.collate_fn is default_collate,
        batched_access=not loader._auto_collation or _gives_batches(dataset),
        line=line,
        trains=False,
        start_method=(context or torch.multiprocessing).get_start_method() if loader.num_workers else "",
        stream=isinstance(dataset, IterableDataset),
        columns=is_of_columns(dataset),
        frame=_has_frame(dataset),
    )


def _gives_batches(dataset: Any) -> bool:
    """Whether a data set is asked for many samples at once. A Subset takes many and asks for them one by one."""
    return bool(getattr(_whole(dataset), "__getitems__", None))


def _has_frame(dataset: Any) -> bool:
    """Whether a data set keeps a DataFrame, whose rows are slow to come by one at a time."""
    whole = _whole(dataset)
    kept = vars(whole).values() if hasattr(whole, "__dict__") else ()
    return any(type(value).__name__ in ("DataFrame", "Series") for value in kept)


def _whole(dataset: Any) -> Any:
    """The data set of which another is a part."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return dataset
