"""Attributes and methods that other trainers have: what is meant by them here."""

import inspect
from collections.abc import Collection
from typing import Any

from brim.arguments.nearest import nearest
from brim.arguments.other_trainers import name_here
from brim.errors import ConfigError

SIMILAR = 0.7

_SAVE = (
    "fit(save_model=True, model_path='model.pt') writes the weights; brim.load(run, model) reads those of a run folder"
)
_LOAD = "weights: trainer.model.load_state_dict(torch.load(path)); brim.load(run, model) reads those of a run folder"
_CHECKPOINTS = (
    "checkpoints are written by themselves (checkpoint_every=, keep=); fit(resume=folder) goes on from the newest, and "
    "fit(save_model=True) writes the weights alone"
)
_PLACE = "callbacks are handed epoch and step, and what fit returns has steps and epochs"
_NUMBERS = "what fit returns has .metrics, and metrics.jsonl of its .run folder has every number of the run"
_PROCESS = "the ranks are trainer.ranks, with .rank, .world and .is_first"
_STOP = "call trainer.stop('why'), which ends the run after the current step"
_LOG = "call trainer.log({'name': value, ...}), or trainer.log(name, value) for one"
_OWN_LOSS = "the loss is yours to write: loss_fn=lambda model, batch: ..."
_LOADERS = "data is handed over as Trainer(model, train_data, eval_data), loaders too"

METHODS: dict[str, str] = {
    # running
    "train": "call trainer.fit()",
    "training": "whether the model trains is trainer.model.training",
    "run": "call trainer.fit()",
    "validate": "call trainer.evaluate(data)",
    "eval": "call trainer.evaluate(data)",
    "test": "call trainer.evaluate(test_data), or hand over test_data=, which fit evaluates at its end",
    "score": "call trainer.evaluate(data)",
    "fit_loop": "the loop is fit()",
    "tune": "there is no tuner; micro_batch='auto' finds what fits into memory",
    "lr_find": "try rates with a Trainer(lr=..., max_steps=...) for each",
    "fit_one_cycle": "call trainer.fit(), with Trainer(scheduler=lambda optimizer: OneCycleLR(optimizer, ...))",
    "fine_tune": "freeze with requires_grad_(False), call trainer.fit(), and make a Trainer for the second stage",
    "get_preds": "call trainer.predict(data)",
    "show_results": "call trainer.predict(data)",
    "compile": "there is nothing to compile: optimizer=, loss_fn= and metrics= are arguments of Trainer",
    "hyperparameter_search": "make a Trainer for each trial",
    "should_stop": _STOP,
    "stop_training": _STOP,
    # weights and checkpoints
    "save_model": _SAVE,
    "save": _SAVE,
    "save_weights": _SAVE,
    "save_pretrained": "call trainer.model.save_pretrained(folder) after fit",
    "save_checkpoint": _CHECKPOINTS,
    "load_checkpoint": _CHECKPOINTS,
    "load": _LOAD,
    "load_model": _LOAD,
    "load_weights": _LOAD,
    "summary": "print(trainer.model) shows its layers, and the page of a run its size",
    "predict_proba": "call trainer.predict(data).softmax(1), or sigmoid() of one score each",
    "load_from_checkpoint": _CHECKPOINTS,
    "checkpoint_callback": _CHECKPOINTS,
    "checkpoint_callbacks": _CHECKPOINTS,
    "best_model_path": "the best weights are in checkpoints/best of what fit returns: result.run",
    "load_best_model": "fit leaves the model with its best weights (restore_best=)",
    "push_to_hub": "brim speaks to no network; call trainer.model.push_to_hub(...) after fit",
    "create_model_card": "brim speaks to no network; call trainer.model.push_to_hub(...) after fit",
    "state_dict": "weights are trainer.model.state_dict(); checkpoints of a run are in its folder",
    "load_state_dict": "weights: trainer.model.load_state_dict(...); a run goes on with fit(resume=folder)",
    "parameters": "they are the model's: trainer.model.parameters()",
    "to": "the device is chosen with Trainer(device=...)",
    "cuda": "the device is chosen with Trainer(device=...)",
    "cpu": "the device is chosen with Trainer(device=...)",
    "export": _SAVE,
    "model_wrapped": "it is trainer.model",
    "lightning_module": "it is trainer.model",
    "module": "it is trainer.model",
    # where a run is
    "current_epoch": _PLACE,
    "epoch": _PLACE,
    "global_step": _PLACE,
    "step": _PLACE,
    "state": _PLACE,
    "num_training_batches": _PLACE,
    "estimated_stepping_batches": "schedules by name, and brim.Schedule, know how many steps there are",
    # numbers
    "log_dict": _LOG,
    "log_metrics": _LOG,
    "save_metrics": _NUMBERS,
    "callback_metrics": _NUMBERS,
    "logged_metrics": _NUMBERS,
    "progress_bar_metrics": _NUMBERS,
    "history": _NUMBERS,
    "best_score": _NUMBERS,
    "accuracy": _NUMBERS,
    "log_history": _NUMBERS,
    "logger": "loggers= takes them, and metrics.jsonl of the run folder has every number",
    # parts
    "add_callback": "callbacks are handed over as Trainer(callbacks=[...])",
    "remove_callback": "callbacks are handed over as Trainer(callbacks=[...])",
    "lr_scheduler": "it is trainer.scheduler",
    "lr_schedulers": "it is trainer.scheduler",
    "lr_scheduler_configs": "it is trainer.scheduler",
    "create_optimizer": "hand over Trainer(optimizer=lambda parameters: ...)",
    "create_scheduler": "hand over Trainer(scheduler=lambda optimizer: ...)",
    "compute_loss": _OWN_LOSS,
    "training_step": _OWN_LOSS,
    "prediction_step": "call trainer.predict(data, output=...)",
    "get_train_dataloader": _LOADERS,
    "get_eval_dataloader": _LOADERS,
    "get_test_dataloader": _LOADERS,
    "datamodule": _LOADERS,
    "num_gpus": "they are trainer.devices",
    # processes
    "is_global_zero": _PROCESS,
    "is_world_process_zero": _PROCESS,
    "is_local_process_zero": _PROCESS,
    "global_rank": _PROCESS,
    "local_rank": _PROCESS,
    "world_size": _PROCESS,
    "accelerator": _PROCESS,
}

FIXED = ("model", "loss_fn", "callbacks")  # arguments that are no settings
MADE = ("settings", "bounds", "ranks", "journal")  # from the arguments and from where the process runs
ARGUMENTS = {"accumulation": "gradient_accumulation_steps", "devices": "device"}  # attributes by what they come from


class UnknownAttribute(ConfigError, AttributeError):
    """A sentence for people, and an AttributeError for ``hasattr``, ``getattr(..., default)`` and ``copy``."""


def missing_attribute(owner: Any, name: str) -> AttributeError:
    """What to raise in ``__getattr__``: with what is meant by ``name``, in the words of another trainer or misspelt."""
    kind = type(owner).__name__
    if name.startswith("_"):  # protocols of Python and of libraries ask for these
        return AttributeError(f"{kind!r} object has no attribute {name!r}")
    return UnknownAttribute(f"{kind} has no attribute {name}: {_advice(owner, name)}")


def check_assignment(owner: Any, name: str, may: Collection[str] = ()) -> None:
    """Refuse to set what would have no effect on an object that is made.

    That is a setting, what was made of one, or a word of another trainer's. ``may`` are those that are looked at again.
    Names of the user's own are nobody's business.
    """
    if name.startswith("_") or name in may:
        return
    kind, told = type(owner).__name__, vars(vars(owner)["settings"])
    setting = ARGUMENTS.get(name) or (name if name in told or name in FIXED else name_here(name, told))
    if setting is not None:
        raise ConfigError(
            f"setting {name} has no effect on a {kind} that is made; make a new one: {kind}(..., {setting}=...)"
        )
    if name in METHODS:
        raise ConfigError(f"setting {name} has no effect on a {kind}: {METHODS[name]}")
    if name in MADE:
        raise ConfigError(
            f"setting {name} has no effect on a {kind} that is made; make a new one with the arguments that you want"
        )


def _advice(owner: Any, name: str) -> str:
    # Not by getattr: that may end here again.
    own = vars(owner)
    known = [one for one in {*own, *dir(type(owner))} if not one.startswith("_")]
    told = [*vars(own["settings"])] if "settings" in own else []  # what it was told
    if name in METHODS:
        return METHODS[name]
    if name in told:
        return f"it is settings.{name}, as it was handed over"
    if (here := name_here(name, known)) is not None:
        return f"it is {here}"
    if (here := name_here(name, told)) is not None:
        return f"it is settings.{here}, as it was handed over"
    words = METHODS if told else {}  # a Result is asked for them by the letter only
    if (near := nearest(name, [*known, *words], SIMILAR)) is not None:
        return words.get(near, f"did you mean {near}?")
    if not told:
        return f"it has {', '.join(sorted(known))}"
    methods = sorted(one for one in known if inspect.isfunction(inspect.getattr_static(type(owner), one, None)))
    return f"its methods are {', '.join(methods)}"
