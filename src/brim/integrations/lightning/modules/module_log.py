"""``self.log`` of a LightningModule: where a number goes by the method that logs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from brim.arguments.known import explained_call
from brim.data import move_data_to_device
from brim.engine.numbers.pass_notes import RESERVED, RESERVED_PREFIXES
from brim.engine.numbers.summed_loss import Loss
from brim.engine.trainer import run_now
from brim.errors import ConfigError, a_type
from brim.integrations.lightning.modules.epoch_value import EpochValue, as_float, reduction_of
from brim.integrations.lightning.modules.loop_state import LoopState

if TYPE_CHECKING:
    from brim.engine.trainer import Trainer

# By method: the defaults of on_step and on_epoch, as Lightning has them.
OF_STEPS = ("on_train_batch_start", "training_step", "on_after_backward", "on_before_optimizer_step",
            "on_train_batch_end")  # fmt: skip
OF_VALIDATION_STEPS = ("on_validation_batch_start", "validation_step", "on_validation_batch_end")
OF_EPOCHS = ("on_train_start", "on_train_epoch_start", "on_train_epoch_end", "on_validation_start",
             "on_validation_epoch_start", "on_validation_epoch_end")  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """How a name is logged; ``metric``: where in the module its torchmetrics object is."""

    name: str
    on_step: bool
    on_epoch: bool
    reduction: str
    metric: str | None = None

    @property
    def of_step(self) -> str:
        """The name of its numbers of single steps, as Lightning gives it."""
        return f"{self.name}_step" if self.on_step and self.on_epoch else self.name

    @property
    def of_epoch(self) -> str:
        return f"{self.name}_epoch" if self.on_step and self.on_epoch else self.name


class ModuleLog:
    """Takes what a module logs: in training for the lines of the run, in validation for the metrics."""

    def __init__(self, loop: LoopState, batch_size_of: Callable[[Any], int]) -> None:
        self.loop = loop
        self.batch_size_of = batch_size_of
        self.trainer: Trainer | None = None  # until it is made
        self.entries: dict[str, Entry] = {}  # of training
        self._epoch: dict[str, EpochValue] = {}
        self._between: list[tuple[Entry, Tensor | float, int]] = []  # by hooks within a step, beside training_step
        self.validation: dict[str, EpochValue] = {}
        self.validation_entries: dict[str, Entry] = {}

    @explained_call
    def log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: Any = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        metric_attribute: str | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """As ``LightningModule.log``; every number goes to ``metrics.jsonl``, and one process has nothing to sync."""
        hook = self.loop.hook
        step, epoch = levels(hook, name, on_step, on_epoch)
        is_one = value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, int | float)
        if not is_one and not is_metric(value):
            got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else a_type(value)
            raise ConfigError(
                f"self.log({name!r}) takes a number, a tensor with one, or a torchmetrics object, and got {got}"
            )
        if hook in OF_VALIDATION_STEPS and add_dataloader_idx and self.loop.dataloader_idx is not None:
            name = f"{name}/dataloader_idx_{self.loop.dataloader_idx}"
        path = metric_attribute or self._path_of(value) if is_metric(value) else None
        entry = Entry(name, step, epoch, reduction_of(name, reduce_fx), path)
        if is_metric(value) and path is None and (hook != "training_step" or self.is_in_a_pass):
            raise ConfigError(
                f"self.log({name!r}) got {a_type(value)} that is no attribute of the module, so nobody could "
                "reset it; set it as self.some_name in __init__"
            )
        if hook in OF_VALIDATION_STEPS or hook.startswith("on_validation"):
            self._log_in_validation(entry, value, batch_size)
        elif hook == "training_step":
            self._log_in_training_step(entry, value, batch_size)
        elif hook in OF_STEPS:
            self._log_in_hook(entry, value, batch_size)
        else:
            self._log_of_epoch(entry, value)

    def _path_of(self, value: Any) -> str | None:
        return next((path for path, part in self.loop.module.named_modules() if part is value), None)

    @property
    def is_in_a_pass(self) -> bool:
        """Whether a pass is computed that counts; a trial of the loss, perhaps with a copy of the module, does not."""
        return self.trainer is not None and self.trainer._setup.notes._taken is not None

    def _log_in_training_step(self, entry: Entry, value: Any, batch_size: int | None) -> None:
        """A number of a pass: brim's notes keep it only where the pass counts."""
        if entry.reduction != "mean" and entry.metric is None:
            raise ConfigError(
                f"self.log({entry.name!r}) in training_step has reduce_fx={entry.reduction!r}, and a step may be "
                "computed in micro-batches, of which only means add up; log it in on_train_batch_end"
            )
        self.entries[entry.name] = entry
        if is_metric(value):
            value = value._forward_cache
            if value is None or not entry.on_step:
                return
            batch_size = None
        assert self.trainer is not None
        number = value if batch_size is None else Loss(as_float(value) * batch_size, batch_size)
        self.trainer.log(logged_name(entry.name), number)

    def _log_in_hook(self, entry: Entry, value: Any, batch_size: int | None) -> None:
        self.entries[entry.name] = entry
        if is_metric(value):
            value = value._forward_cache
        if value is not None:
            kept = value.detach().clone() if isinstance(value, Tensor) else value
            size = batch_size or (self.batch_size_of(self.loop.batch) if entry.on_epoch else 1)
            self._between.append((entry, kept, size))

    def _log_of_epoch(self, entry: Entry, value: Any) -> None:
        """A number that is one of its epoch already."""
        assert self.trainer is not None
        number = value.compute() if is_metric(value) else value
        if is_metric(value):
            self.entries[entry.name] = entry
        self.loop.metrics[entry.name] = number
        self.trainer.log(logged_name(entry.name), number)

    def _log_in_validation(self, entry: Entry, value: Any, batch_size: int | None) -> None:
        self.validation_entries[entry.name] = entry
        if entry.metric is not None or not entry.on_epoch:
            return
        size = 1
        if entry.reduction == "mean" and self.loop.hook in OF_VALIDATION_STEPS:
            size = batch_size or self.batch_size_of(self.loop.batch)
        self.validation.setdefault(entry.name, EpochValue(entry.reduction)).add(value, size)

    def end_step(self) -> None:
        """After an optimizer step: what its passes logged, and what hooks logged meanwhile."""
        assert self.trainer is not None
        for name, value, weight in run_now(self.trainer).guard.step.numbers:
            entry = self.entries.get(name.removeprefix(OWN))
            if entry is not None:
                mean, count = (value.mean, value.count) if isinstance(value, Loss) else (value, weight)
                self._add(entry, mean, count)
        queued, self._between = self._between, []
        for entry, number, size in queued:
            self.trainer.log(logged_name(entry.name), number)
            self._add(entry, number, size)

    def _add(self, entry: Entry, value: Tensor | float, count: Tensor | float) -> None:
        if entry.on_step:
            self.loop.metrics[entry.of_step] = self.loop.metrics[entry.name] = value
        if entry.on_epoch and entry.metric is None:
            self._epoch.setdefault(entry.name, EpochValue(entry.reduction)).add(value, count)

    def end_epoch(self) -> None:
        """After the module's ``on_train_epoch_end``: the numbers of the epoch, and metrics that begin anew."""
        assert self.trainer is not None
        found = {name: value.result() for name, value in self._epoch.items()}
        found |= self._of_metrics(self.entries)
        self._epoch.clear()
        for name, value in found.items():
            entry = self.entries[name]
            self.loop.metrics[entry.of_epoch] = self.loop.metrics[name] = value
            self.trainer.log(f"{logged_name(name)}_epoch", value)

    def plain(self) -> dict[str, Any]:
        """What a checkpoint keeps of an epoch that is under way."""
        sums = {name: [one.reduction, one.value, one.count] for name, one in self._epoch.items()}
        entries = {name: list(vars(one).values()) for name, one in self.entries.items()}
        return {"sums": sums, "entries": entries}

    def load(self, plain: dict[str, Any], device: torch.device) -> None:
        """Go on with such an epoch."""
        self.entries = {name: Entry(*fields) for name, fields in plain["entries"].items()}
        self._epoch = {}
        for name, (reduction, value, count) in plain["sums"].items():
            self._epoch[name] = one = EpochValue(reduction)
            one.value, one.count = (move_data_to_device(part, device) for part in (value, count))

    def begin_validation(self) -> None:
        self.validation, self.validation_entries = {}, {}

    def end_validation(self) -> dict[str, Tensor]:
        """The metrics of an evaluation, by Lightning's names."""
        found = {name: value.result() for name, value in self.validation.items()}
        found |= self._of_metrics(self.validation_entries)
        entries = self.validation_entries
        both = {name: value for name, value in found.items() if entries[name].of_epoch != name}
        return found | {entries[name].of_epoch: value for name, value in both.items()}

    def _of_metrics(self, entries: dict[str, Entry]) -> dict[str, Tensor]:
        """What torchmetrics objects compute, each once, and then begin anew."""
        metrics = {name: self._metric(entry) for name, entry in entries.items() if entry.metric is not None}
        found = {name: metric.compute() for name, metric in metrics.items() if entries[name].on_epoch}
        for metric in {id(one): one for one in metrics.values()}.values():
            metric.reset()
        for name, value in found.items():
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise ConfigError(
                    f"self.log({name!r}) has a metric that computes more than one number; log its numbers one by one "
                    "in an on_..._epoch_end hook"
                )
        return found

    def _metric(self, entry: Entry) -> Any:
        assert entry.metric is not None
        return self.loop.module.get_submodule(entry.metric)


OWN = "module/"


def logged_name(name: str) -> str:
    """The name in the run folder: that of the module, unless brim writes a number of its own under it.

    >>> logged_name("train_loss"), logged_name("loss")
    ('train_loss', 'module/loss')
    """
    return f"{OWN}{name}" if name in RESERVED or name.startswith(RESERVED_PREFIXES) else name


def levels(hook: str, name: str, on_step: bool | None, on_epoch: bool | None) -> tuple[bool, bool]:
    """Whether a number is one of its step, of its epoch or of both, by the method that logs it.

    >>> levels("training_step", "loss", None, True), levels("validation_step", "loss", None, None)
    ((True, True), (False, True))
    """
    if hook in OF_STEPS or hook in OF_VALIDATION_STEPS:
        is_training = hook in OF_STEPS
        return (is_training if on_step is None else on_step), (not is_training if on_epoch is None else on_epoch)
    if hook not in OF_EPOCHS:
        raise ConfigError(f"self.log({name!r}) is not possible in {hook or 'code that no hook runs'}, as in Lightning")
    if on_step or on_epoch is False:
        raise ConfigError(f"self.log({name!r}) in {hook} is a number of its epoch; leave out on_step and on_epoch")
    return False, True


def is_metric(value: Any) -> bool:
    """Whether it is an object of torchmetrics."""
    return isinstance(value, nn.Module) and any(
        kind.__name__ == "Metric" and kind.__module__.startswith("torchmetrics") for kind in type(value).__mro__
    )
