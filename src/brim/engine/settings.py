"""What the trainer's settings may be: one place for the rules, used by the trainer and by the configuration."""

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from brim.engine.components.lr_scale import RULES
from brim.engine.components.precision import NAMES as PRECISIONS
from brim.engine.components.schedule import as_schedule
from brim.engine.run.cadence import Cadence
from brim.engine.step.nonfinite import ON_NAN
from brim.errors import ConfigError, NotThereYet

CAPTURES = ("auto", "off", "require")
# What each setting may be today, and what it will be able to be: the latter is refused by name, not ignored.
CHOICES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "strategy": (("auto", "single", "dp", "ddp", "fsdp"), ()),
    "capture": (CAPTURES, ()),
    "checkpointing": ((None, "auto", True, False), ()),
    "on_nan": (ON_NAN, ()),
    "scale_lr": ((None, *RULES), ()),
    "precision": (tuple(PRECISIONS), ()),
}
MOST_THREADS = 1024  # OpenMP takes the process down where it cannot start as many as it is told
WHOLE_NUMBERS = {
    "epochs": False,
    "max_steps": True,
    "gradient_accumulation_steps": False,
    "patience": True,
    "log_every": False,
    "checkpoint_every": True,
    "keep": False,
}  # fmt: skip  (name -> whether None is allowed)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise a ConfigError for the first setting that cannot be used."""
    for name, may_be_none in WHOLE_NUMBERS.items():
        check_whole_number(name, settings[name], may_be_none)
    for name in ("micro_batch", "threads"):
        if settings[name] != "auto":
            check_whole_number(name, settings[name], or_else="'auto'")
    _check_positive("lr", settings["lr"])
    if settings["clip_norm"] is not None:
        _check_positive("clip_norm", settings["clip_norm"])
    for name, (today, later) in CHOICES.items():
        check_choice(name, settings[name], today, later)
    seed = settings["seed"]
    if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**63:
        raise ConfigError(f"seed={shorten(seed)} must be a whole number of at most 63 bits")
    if settings["threads"] != "auto" and settings["threads"] > MOST_THREADS:
        raise ConfigError(
            f"threads={settings['threads']} is more than any machine has; use 'auto', or at most its cores"
        )
    if settings["accumulate_grad_batches"] is not None:
        check_whole_number("accumulate_grad_batches", settings["accumulate_grad_batches"])
    if isinstance(settings["compile"], str):
        check_choice("compile", settings["compile"], torch._dynamo.list_backends(exclude_tags=()))
    Cadence.parse(settings["eval_every"])
    if isinstance(settings["scheduler"], str | Mapping):
        as_schedule(settings["scheduler"])
    if settings["sliceable"] is False and settings["micro_batch"] != "auto":
        raise ConfigError(
            f"sliceable=False forbids slicing, and micro_batch={settings['micro_batch']} asks for it; "
            "leave micro_batch='auto'"
        )


def check_whole_number(name: str, value: Any, may_be_none: bool = False, or_else: str = "") -> None:
    """Refuse anything but a whole number of at least 1."""
    if value is None and may_be_none:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        alternative = f" or {or_else}" if or_else else " or None" if may_be_none else ""
        raise ConfigError(f"{name}={shorten(value)} must be a whole number of at least 1{alternative}")


def check_choice(name: str, value: Any, today: Iterable[Any], later: Iterable[Any] = ()) -> None:
    """Refuse what is not there yet by that name, and what is not known with the nearest name that is."""
    today, later = list(today), list(later)
    if any(value is choice or (value == choice and type(value) is type(choice)) for choice in today):
        return
    usable = ", ".join(repr(choice) for choice in today)
    if value in later:
        raise NotThereYet(f"{name}={shorten(value)} is not in this version of brim; use {usable}")
    near = difflib.get_close_matches(str(value)[:60], [str(choice) for choice in today], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"use {usable}"
    raise ConfigError(f"{name}={shorten(value)} is not known; {hint}")


def shorten(value: Any, most: int = 60) -> str:
    """A value as it would be written in Python, cut where it is longer than a person wants to read."""
    written = repr(value)
    return written if len(written) <= most else written[: most - 3] + "..."


def _check_positive(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:
        raise ConfigError(f"{name}={shorten(value)} must be a number above 0")
