"""What of a LightningModule brim does not translate: refused by name before anything is trained."""

import inspect
from typing import Any

from torch import nn

from brim.errors import ConfigError, a_type
from brim.integrations.lightning.module_kind import is_overridden

# Overridden by the user, each would decide about a part of the step that is brim's own here.
REFUSED = {
    "optimizer_step": "brim makes the optimizer's step itself, once in each transaction; take the override out, and "
    "put a warm-up into the schedule of configure_optimizers",
    "optimizer_zero_grad": "brim clears gradients itself; take the override out",
    "backward": "brim runs the backward pass itself, in micro-batches where memory asks for it; take the override out",
    "configure_gradient_clipping": "brim clips by norm, with clip_norm=; take the override out",
    "clip_gradients": "brim clips by norm, with clip_norm=; take the override out",
    "lr_scheduler_step": "brim calls scheduler.step() itself; take the override out",
    "on_before_zero_grad": "gradients are cleared inside the guarded step; use on_train_batch_end",
    "on_before_backward": "the backward pass is inside the guarded step; change the loss in training_step",
    "on_validation_model_eval": "brim puts the model into eval mode itself, and back; change modes in "
    "on_validation_start",
    "on_validation_model_train": "brim puts every module back into the mode that it had; take the override out",
    "on_validation_model_zero_grad": "gradients are cleared inside the guarded step; take the override out",
    "configure_sharded_model": "brim shards no LightningModule; use configure_model",
    "on_before_batch_transfer": "brim copies batches ahead of time; do this in the collate_fn of the loader",
    "transfer_batch_to_device": "brim copies batches itself, whatever they hold that has .to(device); take the "
    "override out, or derive from brim.integrations.lightning.TransfersBatches",
    "training_epoch_end": "Lightning 2 has no such hook; use on_train_epoch_end",
    "validation_epoch_end": "Lightning 2 has no such hook; use on_validation_epoch_end",
    "log": "numbers go to brim's own run folder; take the override out",
}
# Of a data module: a checkpoint is read once its loaders are made, too late for a state that they depend on.
_STATE = "its loaders are made before brim reads a checkpoint; keep such state in the module's on_save_checkpoint"
REFUSED_OF_DATA = {"state_dict": _STATE, "load_state_dict": _STATE}
# What takes one batch at a time, and brim reads those of an accumulation window at once.
OF_BATCHES = ("on_train_batch_start", "on_train_batch_end", "on_after_backward")


def check_translatable(module: nn.Module, accumulation: int, clips: bool) -> None:
    """Refuse what would silently be another training."""
    kind = type(module).__name__
    if not getattr(module, "automatic_optimization", True):
        raise ConfigError(
            f"{kind} optimizes by hand (automatic_optimization = False), and its training_step makes its own steps; "
            "keep lightning.Trainer with brim.integrations.lightning.BrimCallback, or write the loop with brim.Step"
        )
    for name in ("training_step", "configure_optimizers"):
        if not is_overridden(module, name):
            raise ConfigError(f"{kind} has no {name}, so there is nothing to train by; write it")
    if "dataloader_iter" in inspect.signature(module.training_step).parameters:  # type: ignore[arg-type]
        raise ConfigError(f"{kind}.training_step takes dataloader_iter, and brim reads batches ahead; take the batch")
    check_hooks(module)
    for name in OF_BATCHES if accumulation > 1 else ():
        if is_overridden(module, name):
            raise ConfigError(
                f"{kind}.{name} is called for every batch, and brim computes the {accumulation} batches of an "
                "accumulation window as one step; leave out accumulate_grad_batches, or the hook"
            )
    for name in ("on_before_optimizer_step", "on_after_backward") if clips else ():
        if is_overridden(module, name):
            raise ConfigError(
                f"{kind}.{name} sees gradients before they are clipped in Lightning, and after it here; leave out "
                "clip_norm= (gradient_clip_val), or the hook"
            )


def check_hooks(owner: Any) -> None:
    """Refuse hooks of a module or a data module that have no counterpart."""
    of_data = {} if isinstance(owner, nn.Module) else REFUSED_OF_DATA  # every module has a state_dict
    for name, why in (REFUSED | of_data).items():
        if is_overridden(owner, name) and not _is_brims(owner, name):
            raise ConfigError(f"{type(owner).__name__}.{name} is not translated: {why}")


def check_callbacks_of(module: nn.Module) -> None:
    """Refuse callbacks that a module brings along: they are for Lightning's trainer."""
    brought: Any = getattr(module, "configure_callbacks", list)()
    if brought:
        one = brought[0] if isinstance(brought, list | tuple) else brought
        raise ConfigError(
            f"{type(module).__name__}.configure_callbacks brings {a_type(one)}, which is for Lightning's "
            "trainer; return [] there, and pass monitor=, patience= and keep_best=, or brim.Callback objects"
        )


def _is_brims(owner: Any, name: str) -> bool:
    method = getattr(owner, name)
    return str(getattr(method, "__module__", "")).startswith("brim.")
