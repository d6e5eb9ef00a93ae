"""The plan of what a function of the user's describes, and ready-made settings."""

import importlib
import sys
from pathlib import Path
from typing import Any

from brim.errors import ConfigError
from brim.hardware.tiers import TIER_MEANS, TIERS
from brim.user_line import users_errors


def tier_overrides(tier: str | None, has_cache: bool = True) -> list[str]:
    """The settings of a tier, as a plan takes them: what else is set wins. ``has_cache``: whether the workload can."""
    if tier is None:
        return []
    if tier not in TIERS:
        raise ConfigError(f"there is no tier {tier!r}; {TIER_MEANS}")
    cached = [f"model.use_cache={str(TIERS[tier].use_cache).lower()}"] if has_cache else []
    return [f"train_ds.batch_size={TIERS[tier].batch_size}", *cached]


def job_of_function(named: str) -> dict[str, Any]:
    """The arguments of `brim.plan`, from a function of the user's named as ``module:function``."""
    module_name, _, function_name = named.partition(":")
    if not module_name or module_name.startswith("."):
        raise ConfigError(f"{named!r} does not name a function; write it as module:function")
    if module_name.endswith(".py"):
        raise ConfigError(
            f"{named} names a file: of a workload it is a setting, workload={named}; a function that returns a job is "
            f"named by its module, {module_name.removesuffix('.py').replace('/', '.')}:{function_name}"
        )
    sys.path.insert(0, str(Path.cwd()))  # for good: the function may import its neighbours when it is called
    with users_errors(f"importing {module_name}"):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            raise ConfigError(f"there is no module {error.name!r}; {named} is looked up from {Path.cwd()}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigError(f"{module_name} has no function {function_name!r}")
    with users_errors(named):
        job = function()
    return _checked(job, named)


def _checked(job: Any, named: str) -> dict[str, Any]:
    known = {
        "model", "batch", "loss", "optimizer", "batch_size", "precision", "clip_norm", "sliceable", "accumulation",
        "micro_batch", "prefetched", "ema", "logits", "checkpointing", "evaluation",
    }  # fmt: skip
    if not isinstance(job, dict) or not {"model", "batch", "batch_size"} <= set(job):
        raise ConfigError(
            f"{named} must return a dictionary with model, batch and batch_size (and loss, optimizer, precision, as "
            "brim.plan takes them)"
        )
    odd = next((key for key in job if key not in known), None)
    if odd is not None:
        raise ConfigError(f"{named}: {odd!r} is not an argument of a plan; known are {', '.join(sorted(known))}")
    return job
