"""The guarded step in a LightningModule that optimizes by hand."""

from typing import Any

from torch import Tensor

from brim.engine.components.loss import LossFunction
from brim.engine.own_step import Step
from brim.errors import ConfigError
from brim.integrations.lightning.module_kind import check_module
from brim.integrations.lightning.trainer.callback import PRECISIONS
from brim.integrations.lightning.trainer.memory_forecast import view_of
from brim.replaced import replaced


class ManualStep:
    """:class:`brim.Step` for ``automatic_optimization = False``: a step that survives running out of memory.

    Make it in ``on_train_start``, call it in ``training_step`` with the batch; it computes, steps and returns the loss,
    and Lightning's ``global_step`` counts it::

        def on_train_start(self):
            self.step = ManualStep(self, lambda model, batch: model.loss(batch))

        def training_step(self, batch, batch_idx):
            self.log("loss", self.step(batch))

    Args:
        module: in training, on one device, with one optimizer.
        loss_fn: as :class:`brim.Step` takes it; it may not call ``self.log``, for a try that failed would be logged.
        settings: of :class:`brim.Step`: ``micro_batch``, ``clip_norm``, ``sliceable``, ``checkpointing``, ``capture``.
    """

    def __init__(self, module: Any, loss_fn: LossFunction, **settings: Any) -> None:
        check_module(module, "ManualStep")
        if module.automatic_optimization:
            raise ConfigError("ManualStep is for automatic_optimization = False; set it in __init__ of the module")
        trainer = module.trainer
        if trainer.world_size > 1:
            raise ConfigError("ManualStep computes on one device, and the trainer has several; use brim.Trainer")
        if str(trainer.precision) not in PRECISIONS:
            raise ConfigError(f"ManualStep does not compute in precision={trainer.precision!r}; use '32-true'")
        optimizers = trainer.strategy._lightning_optimizers
        if len(optimizers) != 1:
            raise ConfigError(f"there are {len(optimizers)} optimizers; make a brim.Step for each of them")
        self._module = module
        self._counted = optimizers[0]  # Lightning counts the steps of this one
        precision = PRECISIONS[str(trainer.precision)]
        self._step = Step(module, self._counted.optimizer, loss_fn, precision=precision, **settings)

    def __call__(self, *batches: Any) -> Tensor:
        """One optimizer step over these batches; the mean loss, on the device."""
        self._counted._on_before_step()
        # The trainer holds loaders and files, which nobody could put back after a try; its counts are in the view.
        with replaced((self._module, "_trainer", view_of(self._module)), (self._module, "log", _refuse_log)):
            loss = self._step(*batches)
        self._counted._on_after_step()
        return loss

    def __deepcopy__(self, memo: Any) -> "ManualStep":
        return self  # it holds the module that has it

    @property
    def micro_batch(self) -> int | None:
        """Samples that go through the module at once; None while batches go through whole."""
        return self._step.micro_batch


def _refuse_log(name: str, *arguments: Any, **named: Any) -> None:
    raise ConfigError(
        f"self.log({name!r}) in the loss of a ManualStep would log tries that fail as well; log what the step returns"
    )
