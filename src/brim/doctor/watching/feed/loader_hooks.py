"""torch's DataLoaders, watched: how long a script waits for them, how they are set, and what they hand out.

While ``replaying``, batches that were handed out before come again, at once: that is the speed of the step alone.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as torch_loaders

from brim.data.garbage import gc_safe_forks
from brim.doctor.batch_contents import samples_in, tensors_of, with_own_containers
from brim.doctor.observation import LoaderSeen
from brim.doctor.watching.feed.batch_costs import BatchCosts, LoaderCost
from brim.doctor.watching.feed.batched_probe import batched_seconds
from brim.doctor.watching.feed.watched_loader import WatchedLoader, settings_of
from brim.doctor.watching.lines.source_lines import shown, users_place
from brim.doctor.watching.meters import Meters
from brim.sizes import known_length

LONG = 1.0  # seconds for a batch: what takes longer is not tried
BY_CHANCE = 3  # times that a batch is taken between two that are trained on: to look at it, or to evaluate on it


class LoaderHooks:
    """Watches every DataLoader of the process."""

    def __init__(self, meters: Meters, costs: BatchCosts) -> None:
        self.meters, self.costs = meters, costs
        self.loaders: list[WatchedLoader] = []
        self._known: WeakKeyDictionary[DataLoader[Any], WatchedLoader] = WeakKeyDictionary()
        self.last: WatchedLoader | None = None
        self._given: Counter[WatchedLoader] = Counter()  # batches since the last backward pass
        self.replaying = False
        self.in_evaluation = False
        self._evaluating_since = 0.0
        self._inside = False
        self._timers = 0  # that run: the end of an epoch ends its workers within the waiting for a batch
        self._thread = threading.main_thread()  # that which trains

    def install(self) -> None:
        hooks = self
        iterator = torch_loaders._BaseDataLoaderIter
        get_next, get_iterator = iterator.__next__, DataLoader._get_iterator
        make = DataLoader.__init__
        start_epoch, shut_down = DataLoader.__iter__, torch_loaders._MultiProcessingDataLoaderIter._shutdown_workers

        def watched_init(self: Any, *arguments: Any, **options: Any) -> None:
            make(self, *arguments, **options)
            hooks.watched(self)

        def watched_next(self: Any) -> Any:
            return hooks._next(self, get_next)

        def watched_get_iterator(self: Any) -> Any:
            with _Time(hooks, "worker_starts" if self.num_workers else "data"), gc_safe_forks():
                hooks.watched(self).worker_starts += bool(self.num_workers)
                made = get_iterator(self)
            hooks.watched(self).epoch = ref(made)
            made._brim_loader = hooks.watched(self)  # type: ignore[attr-defined]
            made._brim_is_new = bool(self.num_workers)  # type: ignore[attr-defined]
            return made

        def watched_iter(self: Any) -> Any:
            watched = hooks.watched(self)
            if hooks.replaying and watched.kept and watched.backwards:
                return _Replay(hooks, watched)
            if watched.backwards:  # its workers are started for the training, not for the evaluation before it
                hooks._end_evaluation()
            hooks.begin_epoch(watched)
            return start_epoch(self)

        def watched_shut_down(self: Any) -> None:
            with _Time(hooks, "worker_starts"):
                shut_down(self)

        DataLoader.__init__ = watched_init  # type: ignore[method-assign]
        iterator.__next__ = watched_next  # type: ignore[method-assign]
        DataLoader._get_iterator = watched_get_iterator  # type: ignore[method-assign]
        DataLoader.__iter__ = watched_iter  # type: ignore[method-assign]
        torch_loaders._MultiProcessingDataLoaderIter._shutdown_workers = watched_shut_down  # type: ignore[method-assign]

    def watched(self, loader: DataLoader[Any]) -> WatchedLoader:
        """What is known of a loader. One that is made where another was that is gone stands for the same."""
        if loader not in self._known:
            settings = settings_of(loader, shown(users_place()))
            alive = list(self._known.values())
            gone = [old for old in self.loaders if old not in alive and _is_like(old.settings, settings)]
            self._known[loader] = self._again(gone[-1], loader) if gone else self._added(loader, settings)
        return self._known[loader]

    def _added(self, loader: DataLoader[Any], settings: LoaderSeen) -> WatchedLoader:
        self.loaders.append(WatchedLoader(settings, self.costs.place(loader.dataset), known_length(loader) or 0))
        return self.loaders[-1]

    def _again(self, watched: WatchedLoader, loader: DataLoader[Any]) -> WatchedLoader:
        self.costs.share_place(loader.dataset, watched.place)
        watched.made += 1
        return watched

    def begin_epoch(self, watched: WatchedLoader) -> None:
        if threading.current_thread() is self._thread and watched is self.train:
            self.meters.epochs += 1

    def next_of_feed(self, watched: WatchedLoader, get_next: Callable[[], Any], batches: int) -> Any:
        """The next batch of a feed of brim's; where a DataLoader counted more than ``batches`` meanwhile, it is its."""
        if threading.current_thread() is not self._thread:
            return get_next()
        if self.last is None or self.last.settings is None:
            self._note_evaluation(watched)
        if self.replaying and watched.kept and watched.backwards:
            return self._replayed(watched)
        with _Time(self, "data"):
            batch = get_next()
        if self.meters.batches == batches:
            self._taken(watched, watched.take(batch))
        return batch

    def on_backward(self) -> None:
        """A backward pass: the last batch was for training, and it is this thread that waits for the next."""
        self._thread = threading.current_thread()
        if self.last is not None:
            self.last.backwards += 1
            for other, batches in self._given.items():
                # One that is read beside it, and not to its end, is trained on as well.
                if other is not self.last and batches <= self._given[self.last]:
                    other.beside += 1
                    other.backwards += other.beside > BY_CHANCE
        self._given.clear()
        if self.train is None:
            self._end_evaluation()

    @property
    def train(self) -> WatchedLoader | None:
        """The loader that most backward passes had their batch from."""
        used = [loader for loader in self.loaders if loader.backwards]
        return max(used, key=lambda loader: loader.backwards, default=None)

    def kept_tensors(self) -> list[torch.Tensor]:
        """The tensors of all batches that are handed out again."""
        return [tensor for loader in self.loaders for batch in loader.kept for tensor in tensors_of(batch)]

    def probe(self) -> None:
        """Try what a batch of the training's loader costs by one index, where making it one by one is no long work."""
        train = self.train
        epoch = None if train is None else train.epoch()
        if train is None or epoch is None or not train.batches:
            return
        cost = self._cost(train).since(train.costs_before)
        if cost.batches and cost.seconds / cost.batches < LONG:
            train.batched_seconds = batched_seconds(epoch, round(train.samples / train.batches))
            train.was_probed = True

    def begin_window(self) -> None:
        """From here on, counts are those of the window that is reported."""
        for loader in self.loaders:
            loader.begin_window(self._cost(loader))

    def seen(self) -> tuple[LoaderSeen, ...]:
        used = [loader for loader in self.loaders if loader.batches and loader.settings is not None]
        return tuple(loader.seen(self._cost(loader)) for loader in used)

    def _cost(self, loader: WatchedLoader) -> LoaderCost:
        return LoaderCost() if loader.settings is None else self.costs.total(loader.place)

    def _next(self, iterator: Any, get_next: Any) -> Any:
        watched: WatchedLoader | None = getattr(iterator, "_brim_loader", None)
        is_main = threading.current_thread() is self._thread
        if watched is None or self._inside or not is_main:
            batch = get_next(iterator)
            if watched is not None and not self._inside:
                watched.take(batch)
                self._note_last(watched)
            return batch
        self._note_evaluation(watched)
        if self.replaying and watched.kept and watched.backwards:
            return self._replayed(watched)
        self._inside = True
        start = time.perf_counter()
        try:
            with _Time(self, "data"):
                batch = get_next(iterator)
        except StopIteration:
            if self.train is None:  # nobody will ask for a batch to train on, which is the end of it elsewhere
                self._end_evaluation()
            raise
        finally:
            self._inside = False
        self._count_wait(watched, iterator, time.perf_counter() - start)
        self._taken(watched, watched.take(batch))
        return batch

    def _count_wait(self, watched: WatchedLoader, iterator: Any, seconds: float) -> None:
        """Workers that have just been started have nothing ready, and those that are spawned start for seconds."""
        if not getattr(iterator, "_brim_is_new", False):
            watched.waits += 1
            watched.waited += seconds
            return
        iterator._brim_is_new = False
        cost = self.costs.total(watched.place)
        usual = cost.seconds / cost.batches if cost.batches else watched.waited / max(1, watched.waits)
        if not self.in_evaluation:
            self.meters.worker_starts += max(0.0, seconds - usual)

    def _note_last(self, watched: WatchedLoader) -> None:
        """What is read without gradients is not trained on, though a backward pass on something else may follow."""
        if torch.is_grad_enabled():
            self.last = watched
            self._given[watched] += 1

    def _taken(self, watched: WatchedLoader, samples: int) -> None:
        self._note_last(watched)
        if not self.in_evaluation:
            self.meters.batches += 1
            self.meters.samples += samples

    def _replayed(self, watched: WatchedLoader) -> Any:
        watched.kept.rotate(1)
        batch = with_own_containers(watched.kept[0])
        self._taken(watched, samples_in(batch))
        return batch

    def _note_evaluation(self, watched: WatchedLoader) -> None:
        """A loader whose batches are never trained on is for evaluation, until the other one is asked again."""
        train = self.train
        if train is None and torch.is_grad_enabled():
            self._end_evaluation()  # one that was broken off, as a check before the training is
            return
        if watched is train or watched.backwards:
            self._end_evaluation()
        elif not self.in_evaluation:
            self._evaluating_since = time.perf_counter()
            self.in_evaluation = True

    def _end_evaluation(self) -> None:
        if self.in_evaluation:
            self.meters.evaluation += time.perf_counter() - self._evaluating_since
        self.in_evaluation = False


class _Replay:
    """An epoch that does not end while it is trained on; where a script evaluates on its training data, it does."""

    def __init__(self, hooks: LoaderHooks, watched: WatchedLoader) -> None:
        self.hooks, self.watched = hooks, watched
        self._backwards, self._left = watched.backwards, watched.length

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.watched.backwards > self._backwards:
            self._backwards, self._left = self.watched.backwards, self.watched.length
        if self.watched.length and not self._left:
            raise StopIteration
        self._left -= 1
        self.hooks._note_evaluation(self.watched)
        return self.hooks._replayed(self.watched)

    def __len__(self) -> int:
        return self.watched.length


class _Time:
    """Adds the time of a block to the waiting for data, and to a second meter; not twice, and not during evaluation."""

    def __init__(self, hooks: LoaderHooks, name: str) -> None:
        self.hooks, self.name, self.start, self.is_main = hooks, name, 0.0, False

    def __enter__(self) -> None:
        self.is_main = threading.current_thread() is self.hooks._thread
        self.hooks._timers += self.is_main
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.hooks._timers -= self.is_main
        if not self.is_main or self.hooks.in_evaluation:
            return
        spent, meters = time.perf_counter() - self.start, self.hooks.meters
        if self.hooks._timers == 0:
            meters.data += spent
        if self.name == "worker_starts":
            meters.worker_starts += spent


def _is_like(old: LoaderSeen | None, new: LoaderSeen) -> bool:
    """Whether a loader is made on the same line as another, with the same settings from as much of the same data."""
    return old == new and bool(new.line)
