"""A LightningModule, trained in brim's loop."""

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brim.data.randomness.generators import generator_states, process_generators
from brim.engine.components.weights_before import WeightsBefore
from brim.engine.distributed.ranks import Ranks
from brim.engine.run_folder.result import Result
from brim.engine.trainer import Trainer
from brim.errors import ConfigError
from brim.integrations.lightning.module_kind import base_of, check_module, is_overridden, library_part
from brim.integrations.lightning.modules.batch_transfer import BatchTransfer
from brim.integrations.lightning.modules.hook_bridge import HookBridge
from brim.integrations.lightning.modules.loop_state import LoopState
from brim.integrations.lightning.modules.module_log import ModuleLog
from brim.integrations.lightning.modules.optimizers import Optimization, optimization_of
from brim.integrations.lightning.modules.refusals import check_callbacks_of, check_hooks, check_translatable
from brim.integrations.lightning.modules.settings import brim_settings
from brim.integrations.lightning.modules.trainer_view import TrainerView, ViewedRun, accumulation_of
from brim.integrations.lightning.modules.training_loss import reads_argument, training_loss, why_not_captured
from brim.integrations.lightning.modules.validation import BATCHES, Validation, loaders_in
from brim.record import Journal
from brim.replaced import replaced
from brim.sizes import known_length


def train(
    module: Any,
    train_dataloaders: Any = None,
    val_dataloaders: Any = None,
    datamodule: Any = None,
    *,
    resume: str | Path | None = None,
    **settings: Any,
) -> Result:
    """Train a LightningModule in brim's loop, as ``lightning.Trainer(...).fit(module, ...)`` would train it.

    What is translated, and what is refused by name, is listed in docs/lightning.md.

    Args:
        module: with ``training_step`` and ``configure_optimizers``; one optimizer, automatic optimization.
        train_dataloaders: a loader, or a LightningDataModule; None for the module's own ``train_dataloader``.
        val_dataloaders: a loader or several; None for the module's own ``val_dataloader``.
        datamodule: instead of loaders.
        resume: the folder of a run to continue, or ``"auto"``, as ``brim.Trainer.fit`` takes it.
        settings: arguments of :class:`brim.Trainer`, or by Lightning's names where these mean the same: ``max_epochs``,
            ``gradient_clip_val``, ``check_val_every_n_epoch``, ``limit_val_batches``, ``log_every_n_steps``,
            ``accelerator``, ``devices``. The weights of the end are left unless ``restore_best=True``, and random
            numbers go on from where they stand unless ``seed=`` is given, both as Lightning does.

    Returns:
        Where the run is, how far it came, and its metrics.

    Raises:
        ConfigError: for what is not translated, by its name and before anything is trained.
    """
    check_module(module)
    if base_of(train_dataloaders) is not None:
        train_dataloaders, datamodule = None, train_dataloaders
    told = brim_settings(settings)
    check_translatable(module, accumulation_of(told), told.get("clip_norm") is not None)
    if datamodule is not None:
        check_hooks(datamodule)
    check_callbacks_of(module)
    if not Ranks.from_environment().is_alone:
        raise ConfigError(
            "train computes in one process, and this is one of several ranks; start it without torchrun, or hand "
            "training_step to brim.Trainer as loss_fn"
        )
    return _Training(module, datamodule, told).run(train_dataloaders, val_dataloaders, resume)


class _Training:
    """One call of :func:`train`: what the module is given meanwhile, and the trainer that is made of it."""

    def __init__(self, module: nn.Module, datamodule: Any, settings: dict[str, Any]) -> None:
        self.module: Any = module
        self.datamodule = datamodule
        self.settings = settings
        self.loop = LoopState(module)
        self.warn = cache(Journal().warn)  # each sentence once, whatever comes at every step
        self.viewed = ViewedRun(self.loop, settings, self.warn, datamodule)
        self.transfer = BatchTransfer(module, datamodule)
        self.log = ModuleLog(self.loop, library_part(module, "utilities.data").extract_batch_size)

    def run(self, train_data: Any, val_data: Any, resume: str | Path | None) -> Result:
        modes = [(part, part.training) for part in self.module.modules()]
        with _attached(self.module, TrainerView(self.viewed), self.log), _datamodule_of(self.datamodule, self.viewed):
            self._set_up()
            loader, validation = self._loaders(train_data, val_data)
            optimization = self.viewed.optimization = self._optimization()
            bridge = HookBridge(self.loop, self.log, self.datamodule, modes, self.warn)
            with process_generators():
                trainer = self._trainer(loader, validation, optimization, bridge)
            self.viewed.trainer = self.log.trainer = trainer
            try:
                self.loop.call("on_fit_start")
                if "seed" not in self.settings:  # after the hook, which may set a seed
                    bridge.generators = generator_states(torch.device("cpu"))
                if validation is not None:
                    self._try_out(validation, trainer)
                result = trainer.fit(resume=resume)
            finally:
                bridge.close()
            self._write_hyperparameters(result.run)
            for owner in (self.datamodule, self.module):
                if is_overridden(owner, "teardown"):
                    owner.teardown("fit")
            return result

    def _try_out(self, validation: Validation, trainer: Trainer) -> None:
        """Lightning's sanity check, with weights as they will be trained and random numbers as if it were not."""
        precision = validation.precision = trainer.precision
        with process_generators(), WeightsBefore(precision, self.module):
            if precision.weights_dtype is not None:  # fit would place them later
                precision.placed(self.module)
            validation.try_out(self.module)
        if validation.monitor != BATCHES or self.settings.get("monitor") is not None:
            return
        chosen = next((name for name in ("patience", "keep_best", "restore_best") if self.settings.get(name)), None)
        if chosen is not None:
            raise ConfigError(
                f"{chosen}= asks which weights are best, and the validation logs nothing in the two batches before the "
                "training; pass monitor= and mode="
            )

    def _set_up(self) -> None:
        owners = [one for one in (self.datamodule, self.module) if one is not None]
        for name, arguments in (("prepare_data", ()), ("setup", ("fit",))):
            for owner in owners:
                if is_overridden(owner, name):
                    _check_call(owner, name, arguments)
                    getattr(owner, name)(*arguments)
        if is_overridden(self.module, "configure_model"):
            self.module.configure_model()

    def _loaders(self, train_data: Any, val_data: Any) -> tuple[Any, Validation | None]:
        # Lightning makes those of the validation first, in its sanity check, whose random numbers count for nothing.
        with process_generators():
            validating = self._made("val_dataloader", val_data)
        loader, loaders = self._made("train_dataloader", train_data), loaders_in(validating)
        if loader is None:
            raise ConfigError("there is nothing to train on; pass a loader, or a data module with train_dataloader")
        if isinstance(loader, dict) or _is_combined(loader) or len(loaders_in(loader)) > 1:
            raise ConfigError("there are several training loaders, and a step here has batches of one; join them")
        if any(map(_is_combined, loaders)):
            raise ConfigError("a CombinedLoader for validation is not translated; pass its loaders in a list")
        if self.transfer.changes_batches and is_overridden(self.module, "on_train_batch_start"):
            raise ConfigError(
                "on_train_batch_start would see batches before on_after_batch_transfer here; leave one of them out"
            )
        self.viewed.train_dataloader, self.viewed.val_dataloaders = loader, validating
        self._check_accumulation(loader)
        self._settle_length()
        if not loaders:
            if is_overridden(self.module, "validation_step"):
                self.warn(f"{type(self.module).__name__} has a validation_step, and there is no validation data for it")
            return loader, None
        if not is_overridden(self.module, "validation_step"):
            self.warn(f"{type(self.module).__name__} has no validation_step, so the validation data is not used")
            return loader, None
        limit = self.settings.pop("limit_eval_batches", None)
        if limit == 0:  # without any hook, as in Lightning
            return loader, None
        limit = 1 if self.settings.get("fast_dev_run") else limit
        return loader, Validation(self.loop, self.log, loaders, self.transfer, limit)

    def _made(self, name: str, given: Any) -> Any:
        """What was handed over, or else what the data module or the module makes."""
        owners = [one for one in (self.datamodule, self.module) if is_overridden(one, name)]
        return getattr(owners[0], name)() if given is None and owners else given

    def _settle_length(self) -> None:
        """Epochs and steps together: Lightning ends with whichever comes first, and brim counts one of them."""
        steps, epochs = self.settings.get("max_steps"), self.settings.get("epochs")
        if steps is None or epochs is None:
            return
        least = TrainerView(self.viewed).estimated_stepping_batches
        if known_length(self.viewed.train_dataloader) is None:
            raise ConfigError("how many steps an epoch has is not known; pass max_steps or max_epochs, not both")
        if least < steps:
            self.settings["max_steps"] = None

    def _check_accumulation(self, loader: Any) -> None:
        """brim weighs batches of a window by their samples, Lightning each by the same."""
        window, batches = accumulation_of(self.settings), known_length(loader)
        if window == 1:
            return
        step = getattr(self.module.training_step, "__func__", None)
        if step is not None and reads_argument(step, 2):
            raise ConfigError(
                "training_step reads its batch_idx, and the batches of an accumulation window are one step here; leave "
                "out accumulate_grad_batches, or count steps with self.global_step"
            )
        samples, size = known_length(getattr(loader, "dataset", None)), getattr(loader, "batch_size", None)
        is_even = batches is not None and batches % window == 0
        if is_even and samples is not None and size is not None:
            is_even = samples % size == 0 or bool(getattr(loader, "drop_last", False))
        if not is_even:
            self.warn(
                f"the last window of an epoch may have fewer samples than the {window} batches of the others: its "
                "gradient is the mean over its samples here, and Lightning divides it as if it were whole"
            )

    def _optimization(self) -> Optimization:
        made = optimization_of(self.module.configure_optimizers(), self.warn)
        own = self.settings.get("monitor")
        if made.monitor is not None and own is not None and own != made.monitor:
            raise ConfigError(
                f"monitor={own!r}, and the ReduceLROnPlateau of configure_optimizers follows {made.monitor!r}; a run "
                "here follows one metric"
            )
        if made.mode is not None and self.settings.get("eval_every", 1) != 1:
            raise ConfigError(
                f"eval_every={self.settings['eval_every']!r}: the ReduceLROnPlateau of configure_optimizers steps "
                "every epoch in Lightning, and with each evaluation here; evaluate every epoch"
            )
        return made

    def _trainer(
        self, loader: Any, validation: Validation | None, optimization: Optimization, bridge: HookBridge
    ) -> Trainer:
        loss = training_loss(self.loop, self.transfer, bridge.before_pass)
        settings = {"device": "auto", "use_multi_gpu": False, "restore_best": False, **self.settings}
        settings.setdefault("seed", int(os.environ.get("PL_GLOBAL_SEED", 0)))
        why = why_not_captured(self.module, loss)
        if why is not None and settings.get("capture") != "off":
            if settings.get("capture") == "require":
                raise ConfigError(f"capture='require': steps cannot be captured, for {why}")
            settings["capture"] = "off"
            if torch.cuda.is_available():
                self.warn(f"steps are not captured: {why}")
        if optimization.monitor is not None:
            settings |= {"monitor": optimization.monitor, "mode": settings.get("mode", optimization.mode)}
        settings["callbacks"] = [bridge, *_own_callbacks(settings.get("callbacks") or ())]
        return Trainer(
            self.module, loader, validation, loss_fn=loss, optimizer=optimization.optimizer,
            scheduler=optimization.scheduler, scheduler_every=optimization.every, **settings,
        )  # fmt: skip

    def _write_hyperparameters(self, folder: Path) -> None:
        """``save_hyperparameters``, where Lightning's loggers put it: ``hparams.yaml``."""
        if self.settings.get("fast_dev_run"):
            return
        given = {**dict(getattr(self.datamodule, "hparams", {})), **dict(self.module.hparams)}
        if given:
            save: Any = library_part(self.module, "core.saving").save_hparams_to_yaml
            save(folder / "hparams.yaml", given)


def _check_call(owner: Any, name: str, arguments: tuple[str, ...]) -> None:
    """Refuse a hook that does not take what Lightning hands it."""
    try:
        inspect.signature(getattr(owner, name)).bind(*arguments)
    except TypeError as error:
        written = ", ".join(["self", *(["stage"] if arguments else [])])
        raise ConfigError(f"{type(owner).__name__}.{name}: {error}; write it as def {name}({written})") from None


def _is_combined(loader: Any) -> bool:
    return type(loader).__name__ == "CombinedLoader"


def _own_callbacks(given: Any) -> list[Any]:
    """brim's callbacks; Lightning's are refused with what to use instead."""
    callbacks = list(given) if isinstance(given, list | tuple) else [given]
    instead = {
        "EarlyStopping": "monitor=, mode= and patience=",
        "ModelCheckpoint": "keep_best=, checkpoint_every=, keep=",
    }
    for one in callbacks:
        if any(kind.__module__.split(".")[0] in ("lightning", "pytorch_lightning") for kind in type(one).__mro__):
            name = type(one).__name__
            raise ConfigError(
                f"{name} is a callback of Lightning's trainer; use {instead.get(name, 'a brim.Callback')} instead"
            )
    return callbacks


@contextmanager
def _attached(module: Any, view: TrainerView, log: ModuleLog) -> Iterator[None]:
    """The module has a trainer and a log meanwhile."""
    module.trainer = view
    try:
        # A function and not a method: a copy of the module on trial must not copy the run.
        with replaced((module, "log", lambda *arguments, **named: log.log(*arguments, **named))):
            yield
    finally:
        module.trainer = None


@contextmanager
def _datamodule_of(datamodule: Any, viewed: ViewedRun) -> Iterator[None]:
    if datamodule is None:
        yield
        return
    datamodule.trainer = TrainerView(viewed)
    try:
        yield
    finally:
        datamodule.trainer = None
