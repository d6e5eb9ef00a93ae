"""The hooks of a LightningModule, called at the moments of a run of brim's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from brim.data import batch_length
from brim.data.randomness.generators import restore_generators
from brim.engine.control.callbacks import Callback
from brim.engine.trainer import run_now, run_of
from brim.errors import ConfigError
from brim.integrations.lightning.module_kind import is_overridden
from brim.integrations.lightning.modules.loop_state import LoopState
from brim.integrations.lightning.modules.metric_states import MetricStates
from brim.integrations.lightning.modules.module_log import ModuleLog

if TYPE_CHECKING:
    from brim.engine.trainer import Trainer

AFTER_THE_LAST_BATCH = ("on_train_batch_end", "on_validation_start", "on_validation_epoch_start",
                        "on_validation_epoch_end", "on_validation_end")  # fmt: skip


class HookBridge(Callback):
    """Keeps the counts of the module's run, and calls its hooks.

    Args:
        loop: where the run stands.
        log: where ``self.log`` leaves its numbers.
        datamodule: of the run, if it has one.
        modes: of the module's parts as its user left them: Lightning trains them so.
        warn: called with a sentence, of which it says each once.
    """

    def __init__(
        self,
        loop: LoopState,
        log: ModuleLog,
        datamodule: Any,
        modes: list[tuple[Any, bool]],
        warn: Callable[[str], Any],
    ) -> None:
        self.loop = loop
        self.log = log
        self.datamodule = datamodule
        self.generators: dict[str, Any] | None = None  # where they stand when it begins; None: brim's seed counts
        self.modes = modes
        self.warn = warn
        self.metrics = MetricStates(loop.module)
        self._is_resumed = False
        self._rates: list[Any] = []  # that the epoch began with
        self._handles: list[Any] = []

    def on_load(self, trainer: Trainer, step: int) -> None:
        self._is_resumed = True

    def on_fit_start(self, trainer: Trainer) -> None:
        progress = run_now(trainer).state.progress
        self.loop.epoch, self.loop.step = progress.epoch, progress.step
        if not self._is_resumed and self.generators is not None:
            restore_generators(self.generators, trainer.device)
        for part, mode in self.modes:
            part.training = mode
        self._watch_optimizer(trainer.optimizer)
        self.loop.call("on_train_start")

    def _watch_optimizer(self, optimizer: Any) -> None:
        """What Lightning calls between the backward pass and the optimizer's step; there is no clipping in between."""
        if any(is_overridden(self.loop.module, name) for name in ("on_after_backward", "on_before_optimizer_step")):
            self._handles.append(optimizer.register_step_pre_hook(self._before_optimizer_step))

    def _before_optimizer_step(self, optimizer: Any, arguments: Any, named: Any) -> None:
        self.loop.call("on_after_backward")
        self.loop.call("on_before_optimizer_step", optimizer)

    def on_epoch_start(self, trainer: Trainer, epoch: int) -> None:
        self.loop.epoch = epoch - 1
        self._rates = [group["lr"] for group in trainer.optimizer.param_groups]
        self.loop.call("on_train_epoch_start")

    def on_step_start(self, trainer: Trainer, step: int) -> None:
        run = run_now(trainer)
        self.loop.batch_idx = run.state.progress.epoch_batches
        self.loop.batch = self.loop.returned = None
        self.metrics.snapshot(run.guard.failures)
        if is_overridden(self.loop.module, "on_train_batch_start"):
            self.loop.batch = run.window[0]
            if self.loop.call("on_train_batch_start", self.loop.batch, self.loop.batch_idx) == -1:
                raise ConfigError(
                    "on_train_batch_start returned -1, which makes Lightning leave out the rest of the epoch; brim "
                    "trains whole epochs: use limit_train_batches=, or trainer.should_stop = True"
                )

    def on_step_end(self, trainer: Trainer, step: int, loss: Tensor) -> None:
        run = run_now(trainer)
        self.loop.step = step
        view: Any = self.loop.module.trainer
        # Lightning steps a schedule of epochs with their last batch, before any hook.
        if run.state.progress.epoch_batches >= view.num_training_batches:
            run.step_epoch_schedule()
        if is_overridden(self.loop.module, "on_train_batch_end"):
            outputs, batch = self._outputs(run.window[0], loss)
            self.loop.call("on_train_batch_end", outputs, batch, self.loop.batch_idx)
        self.log.end_step()

    def _outputs(self, whole: Any, loss: Tensor) -> tuple[Any, Any]:
        """What ``training_step`` returned, and for which batch; where it saw it in parts, the loss of all of them."""
        returned, seen = self.loop.returned, self.loop.batch
        if seen is not None and batch_length(seen) == batch_length(whole):
            outputs = dict(returned) if isinstance(returned, dict) else {"loss": returned}
            outputs["loss"] = outputs["loss"].detach()
            return outputs, seen
        self.warn(
            "on_train_batch_end is handed the loss of the whole batch and no other outputs: training_step saw the "
            "batch in parts, for lack of memory"
        )
        return {"loss": loss}, whole

    def on_epoch_end(self, trainer: Trainer, epoch: int) -> None:
        before = [group["lr"] for group in trainer.optimizer.param_groups]
        run_now(trainer).step_epoch_schedule()  # of a stream, whose last batch nobody knew
        self._tell_of_stream(before != [group["lr"] for group in trainer.optimizer.param_groups])
        self._tell_of_plateau(trainer)
        self.loop.call("on_train_epoch_end")
        self.log.end_epoch()

    def _tell_of_stream(self, is_moved: bool) -> None:
        """Lightning knows the last batch of a stream when it comes: a schedule of epochs steps before these hooks."""
        seen = [name for name in AFTER_THE_LAST_BATCH if is_overridden(self.loop.module, name)]
        if is_moved and seen:
            self.warn(
                f"the length of the training data is not known before its end, so at the end of an epoch {seen[0]} "
                "sees the rate of that epoch; in Lightning it sees the next one's"
            )

    def _tell_of_plateau(self, trainer: Trainer) -> None:
        """Lightning lowers such a rate after the hook, and here the evaluation has done it."""
        rates = [group["lr"] for group in trainer.optimizer.param_groups]
        is_moved = isinstance(trainer.scheduler, ReduceLROnPlateau) and rates != self._rates
        if is_moved and is_overridden(self.loop.module, "on_train_epoch_end"):
            self.warn(
                "on_train_epoch_end sees the rate that the ReduceLROnPlateau has lowered; Lightning lowers it after "
                "the hook: a rate that is read or set there is another one"
            )

    def on_fit_end(self, trainer: Trainer) -> None:
        self.loop.call("on_train_end")
        self.loop.call("on_fit_end")

    def on_exception(self, trainer: Trainer, error: BaseException) -> None:
        hook = getattr(self.datamodule, "on_exception", None)
        if hook is not None:
            hook(error)

    def before_pass(self) -> None:
        """Before each call of ``training_step``: metrics have counted nothing of a try that failed.

        Trials in between are undone by whoever makes them.
        """
        run = None if self.log.trainer is None else run_of(self.log.trainer)
        if run is not None and self.log.is_in_a_pass:
            self.metrics.restore_after(run.guard.failures)

    def close(self) -> None:
        """Leave the optimizer without what was put on it."""
        for handle in self._handles:
            handle.remove()

    @property
    def kept_objects(self) -> list[Any]:
        """Parts of the module that :meth:`state_dict` holds."""
        return self.metrics.metrics

    def state_dict(self) -> dict[str, Any]:
        """What ``on_save_checkpoint`` adds to a checkpoint; what metrics and means have counted of an epoch; modes.

        A hook at the beginning of an epoch may have put parts into eval mode, and is not called again within it.
        """
        added: dict[str, Any] = {}
        self.loop.call("on_save_checkpoint", added)
        modes = {name: part.training for name, part in self.loop.module.named_modules()}
        return {"module": added, "metrics": self.metrics.plain(), "log": self.log.plain(), "modes": modes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert self.log.trainer is not None
        self.metrics.load(state["metrics"])
        self.log.load(state["log"], self.log.trainer.device)
        kept = state.get("modes", {})
        self.modes = [(part, kept.get(name, part.training)) for name, part in self.loop.module.named_modules()]
        self.loop.call("on_load_checkpoint", dict(state["module"]))
