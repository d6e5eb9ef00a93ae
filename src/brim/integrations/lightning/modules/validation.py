"""The validation of a LightningModule, batch by batch as Lightning runs it, as an evaluator of brim's."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import torch
from torch import nn

from brim.data import DevicePrefetcher
from brim.data.garbage import gc_safe_forks
from brim.engine.components.precision import Precision
from brim.engine.evaluation.evaluation import evaluating
from brim.integrations.lightning.module_kind import takes_batch_idx
from brim.integrations.lightning.modules.batch_transfer import BatchTransfer
from brim.integrations.lightning.modules.loop_state import SANITY, TRAIN, VALIDATE, LoopState
from brim.integrations.lightning.modules.module_log import ModuleLog
from brim.record.key_numbers import is_higher_better

BATCHES = "batches"  # the metric of a validation that logs none
SANITY_BATCHES = 2  # as Lightning's num_sanity_val_steps


class Validation:
    """Calls ``validation_step`` and its hooks; the metrics are what they log.

    Args:
        loop: where the run stands.
        log: where ``self.log`` leaves its numbers.
        loaders: one or several, each read from its beginning at every validation.
        transfer: what happens to a batch on its way.
        limit: batches of each loader, at most.
    """

    def __init__(
        self, loop: LoopState, log: ModuleLog, loaders: list[Any], transfer: BatchTransfer, limit: int | None
    ) -> None:
        self.loop = loop
        self.log = log
        self.loaders = loaders
        self.transfer = transfer
        self.limit = limit
        self.monitor, self.higher_is_better = BATCHES, False
        self.precision: Precision | None = None  # until it is settled where the run computes
        self._counts_batches = False  # because nothing else decides

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """What the validation logged, as plain numbers. brim has put the model into eval mode, without gradients."""
        return self._run(model, VALIDATE, self.limit)

    def try_out(self, model: nn.Module) -> dict[str, float]:
        """Two batches of each loader before the training, as Lightning does: what is wrong shows before the epoch."""
        most = SANITY_BATCHES if self.limit is None else min(self.limit, SANITY_BATCHES)
        with evaluating(model):
            found = self._run(model, SANITY, most)
        self.monitor = next((name for name in found if "loss" in name), next(iter(found)))
        self.higher_is_better = bool(is_higher_better(self.monitor))
        self._counts_batches = self.monitor == BATCHES
        return found

    def _run(self, model: nn.Module, stage: str, limit: int | None) -> dict[str, float]:
        loop, batches = self.loop, 0
        before, loop.stage = loop.stage, stage
        self.log.begin_validation()
        try:
            loop.call("on_validation_start")
            loop.call("on_validation_epoch_start")
            for number, loader in enumerate(self.loaders):
                loop.dataloader_idx = number if len(self.loaders) > 1 else None
                batches += self._loader(model, loader, number, limit)
            loop.dataloader_idx = None
            loop.call("on_validation_epoch_end")
            found = self.log.end_validation()
            if stage != SANITY:
                loop.metrics.update(found)
            loop.call("on_validation_end")
        finally:
            loop.stage, loop.dataloader_idx = before if before != SANITY else TRAIN, None
        names, values = list(found), [value.double().cpu() for value in found.values()]
        numbers = dict(zip(names, torch.stack(values).tolist() if values else [], strict=True))
        # Code that skips Lightning's sanity check logs nothing there, and yet the number that decides has to come.
        return {**numbers, BATCHES: float(batches)} if self._counts_batches or not numbers else numbers

    def _loader(self, model: Any, loader: Any, number: int, limit: int | None) -> int:
        """The batches of one loader; returns how many there were."""
        assert self.precision is not None
        loop, several = self.loop, [number] if len(self.loaders) > 1 else []
        prefetcher = DevicePrefetcher(self.precision.device, floats=self.precision.weights_dtype)
        is_numbered, made = takes_batch_idx(model.validation_step), 0
        with gc_safe_forks():
            batches = iter(loader)
        for place, batch in enumerate(prefetcher(islice(batches, limit))):
            batch = self.transfer.after(model, batch, number)
            loop.batch, made = batch, made + 1
            numbered = [place] if is_numbered else []
            loop.call("on_validation_batch_start", batch, place, *several)
            with loop.within("validation_step"), self.precision.autocast():
                outputs = model.validation_step(batch, *numbered, *several)
            loop.call("on_validation_batch_end", outputs, batch, place, *several)
        loop.batch = None
        return made


def loaders_in(given: Any) -> list[Any]:
    """One loader, or several in a list, a tuple or a dict, as Lightning takes them.

    >>> loaders_in({"clean": [1], "noisy": [2]})
    [[1], [2]]
    """
    if given is None:
        return []
    if isinstance(given, Mapping):
        return list(given.values())
    is_several = isinstance(given, list | tuple) and all(hasattr(one, "__iter__") for one in given)
    return list(given) if is_several and not _are_batches(given) else [given]


def _are_batches(given: Any) -> bool:
    """A list of ready batches is one loader."""
    return all(isinstance(one, torch.Tensor | tuple | list | dict) for one in given)
