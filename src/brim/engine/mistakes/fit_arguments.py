"""What fit and stop are told, before anything is done."""

from pathlib import Path
from typing import Any

from torch import nn

from brim.errors import ConfigError, a_type


def check_fit_arguments(save_model: Any, model_path: Any, resume: Any) -> None:
    """Refuse what other trainers' ``fit`` takes: a model, data, a flag for resuming.

    >>> check_fit_arguments(True, "model.pt", "runs/one")
    """
    if isinstance(save_model, str | Path):
        raise ConfigError(
            f"save_model={str(save_model)!r} says where, and save_model= whether: "
            f"fit(save_model=True, model_path={str(save_model)!r})"
        )
    if not isinstance(save_model, bool):
        what = "a model" if isinstance(save_model, nn.Module) else f"{a_type(save_model)}"
        raise ConfigError(
            f"fit takes no model and no data, and got {what}: they are Trainer(model, train_data, eval_data)'s; its "
            "own are save_model=True, model_path= and resume="
        )
    if model_path is not None and not isinstance(model_path, str | Path):
        raise ConfigError(f"model_path= is {a_type(model_path)}; give the path of a file")
    if isinstance(run := getattr(resume, "run", None), Path):  # what fit returns
        raise ConfigError(f"resume= takes the run's folder, which is .run of what fit returned: resume={str(run)!r}")
    if resume is not None and not isinstance(resume, str | Path):
        raise ConfigError(
            f"resume={resume!r} does not say which run goes on; use resume='auto' for the one at run_dir=, or name its "
            "folder (None: a new run)"
        )
    if isinstance(resume, str) and not resume:
        raise ConfigError(
            "resume='' names no run folder; use resume='auto' for the one at run_dir=, or name its folder"
        )


def check_no_run_goes_on(is_live: bool) -> None:
    """Refuse a ``fit`` within a ``fit``, which would begin anew at each of its own hooks.

    >>> check_no_run_goes_on(False)
    """
    if is_live:
        raise ConfigError("fit is running, so it cannot be called by a callback or a loss; set epochs= for more of it")


def check_reason(reason: Any) -> None:
    """Refuse what does not say why a run is stopped: the run folder and the result tell it.

    >>> check_reason("good enough")
    """
    if not isinstance(reason, str) or not reason.strip():
        raise ConfigError(f"stop takes why the run ends, in words, and got {reason!r}: trainer.stop('good enough')")
