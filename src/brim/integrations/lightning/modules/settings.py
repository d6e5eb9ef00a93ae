"""Arguments of Lightning's trainer as brim's, where they mean the same."""

from typing import Any

from brim.arguments.nearest import nearest
from brim.errors import ConfigError

RENAMED = {
    "max_epochs": "epochs", "gradient_clip_val": "clip_norm", "limit_val_batches": "limit_eval_batches",
    "check_val_every_n_epoch": "eval_every", "log_every_n_steps": "log_every",
}  # fmt: skip
DEVICES = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda", "mps": "mps", "auto": "auto"}
# What Lightning's trainer has as its default, and means no setting.
NO_SETTING: dict[str, tuple[Any, ...]] = {
    "clip_norm": (0, 0.0, None), "max_steps": (-1, None), "limit_eval_batches": (None,), "limit_train_batches": (None,),
    "gradient_clip_algorithm": ("norm", None), "val_check_interval": (1.0, None), "num_nodes": (1,),
    "enable_progress_bar": (True,), "enable_model_summary": (True, False), "logger": (True, None),
    "epochs": (-1, None), "num_sanity_val_steps": (2,),
}  # fmt: skip

IN_OPTIMIZERS = "the module says it itself, in configure_optimizers"
# Arguments of brim.Trainer that a LightningModule has in another place.
INSTEAD = {
    "loss_fn": "the module says it itself, in training_step",
    "metrics": "the module says it itself, with self.log in validation_step",
    "eval_data": "pass the loader after that of the training, or val_dataloaders=",
    "test_data": "test_step is not called here; after training, lightning.Trainer().test(module, loader) calls it",
} | dict.fromkeys(("optimizer", "scheduler", "scheduler_every", "lr"), IN_OPTIMIZERS)


LENGTHS = ("epochs", "max_epochs", "max_steps")  # of a training, by their names


def brim_settings(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments as :class:`brim.Trainer` takes them; those it does not know it refuses by itself.

    >>> brim_settings({"max_epochs": 3, "gradient_clip_val": 0.5, "accelerator": "cpu"})
    {'epochs': 3, 'clip_norm': 0.5, 'device': 'cpu'}
    """
    found: dict[str, Any] = {}
    by_name: dict[str, str] = {}  # what each was called
    for name, value in given.items():
        for here, setting in _translated(name, value).items():
            if here in found:
                raise ConfigError(f"{by_name[here]} and {name} are the same setting; pass one of them")
            found[here], by_name[here] = setting, name
    if not {"epochs", "max_steps", "fast_dev_run"} & found.keys():
        for name in given.keys() - set(LENGTHS):
            if (near := nearest(name, LENGTHS, 0.8)) is not None:
                raise ConfigError(f"train has no argument {name}: did you mean {near}=?")
        raise ConfigError("say how long to train: epochs= (or max_epochs=), or max_steps=; Lightning's default is 1000")
    return found


def _translated(name: str, value: Any) -> dict[str, Any]:
    """The argument by brim's name; nothing where it is a default of Lightning's that means no setting."""
    here = RENAMED.get(name, name)
    if any(value is one or (value == one and type(value) is type(one)) for one in NO_SETTING.get(here, ())):
        return {}
    if here in ("accelerator", "devices"):
        return _device(here, value)
    if here in ("limit_eval_batches", "limit_train_batches") and isinstance(value, float):
        if value == 1.0:
            return {}
        raise ConfigError(f"{name}={value} is a share of the batches; pass their number")
    _check(name, value)
    if here == "logger":
        return {"loggers": value}
    return {here: "32" if here == "precision" and value == "32-true" else value}


def _device(name: str, value: Any) -> dict[str, Any]:
    if name == "devices":
        if value in (1, "1", "auto"):
            return {}
        raise ConfigError(f"devices={value!r}: train computes on one device; leave it out, or pass device='cuda:1'")
    if value not in DEVICES:
        raise ConfigError(f"accelerator={value!r} is not known; use {', '.join(map(repr, DEVICES))}")
    return {"device": DEVICES[value]}


def _check(name: str, value: Any) -> None:
    if name == "val_check_interval":
        raise ConfigError(f"val_check_interval={value!r}: say eval_every='500 steps', in optimizer steps")
    if name == "num_sanity_val_steps":
        raise ConfigError(
            f"num_sanity_val_steps={value!r}: train tries two batches of the validation data; leave it out"
        )
    if name == "overfit_batches":
        raise ConfigError(
            f"overfit_batches={value!r} means other batches in Lightning (in order, and those of the validation too); "
            "pass limit_train_batches= and limit_val_batches= with loaders that do not shuffle"
        )
    if name == "gradient_clip_algorithm":
        raise ConfigError(f"gradient_clip_algorithm={value!r}: brim clips by norm (clip_norm=)")
    if name == "strategy" and value in ("dp", "ddp", "fsdp"):
        raise ConfigError(f"strategy={value!r}: train computes on one device; leave it out")
    if name == "use_multi_gpu" and value:
        raise ConfigError("use_multi_gpu=True: train computes on one device; leave it out")
    if name == "logger" and value is not False:
        raise ConfigError("logger= is one of Lightning's; pass loggers='tensorboard', 'csv' or 'wandb' instead")
    if name == "ckpt_path":
        raise ConfigError("ckpt_path is a checkpoint of Lightning's; pass resume='runs/NAME' for one of brim's")
    if name in INSTEAD:
        raise ConfigError(f"{name}= is not for a LightningModule: {INSTEAD[name]}")
