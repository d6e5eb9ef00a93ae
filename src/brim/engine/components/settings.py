"""The trainer's settings: one record and one place for their rules, used by the trainer and by the configuration."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from brim.arguments.choices import check_choice as check_choice
from brim.arguments.choices import shorten as shorten
from brim.engine.calling.compiler import Compiler
from brim.engine.calling.memory_format import CHOICES as MEMORY_FORMATS
from brim.engine.components.cadence import Cadence
from brim.engine.components.precision import NAMES as PRECISIONS
from brim.engine.components.precision import refuse_weights_in
from brim.engine.components.schedule import SCALE_RULES, as_schedule
from brim.errors import ConfigError
from brim.hardware.tiers import TIERS
from brim.logits.chunked_head import CHOICES as LOGITS
from brim.model_blocks import check_block_choice
from brim.record.loggers import check_loggers
from brim.sizes import check_whole

CAPTURES = ("auto", "off", "require", "padded")
ADAPTIVE = "adaptive"  # of threads: their number may change in the course of a run
STOP, SKIP, REWIND = ON_NAN = ("stop", "skip", "rewind")
CHOICES: dict[str, tuple[Any, ...]] = {
    "strategy": ("auto", "single", "dp", "ddp", "fsdp"),
    "capture": CAPTURES,
    "on_nan": ON_NAN,
    "scale_lr": (None, *SCALE_RULES),
    "precision": tuple(PRECISIONS),
    "tier": (None, *TIERS),
    "scheduler_every": (None, "step", "epoch"),
    "restore_best": (True, False),
    "sliceable": (None, True, False),
    "fast_dev_run": (True, False),
    "mode": (None, "min", "max"),
    "forecast": ("fresh", "auto"),
    "logits": LOGITS,
    "fit": (None, "auto"),
    "memory_format": MEMORY_FORMATS,
}
MOST_THREADS = 1024  # OpenMP takes the process down where it cannot start as many as it is told
WHOLE_NUMBERS = {
    "epochs": False,
    "max_steps": True,
    "gradient_accumulation_steps": False,
    "accumulate_grad_batches": True,
    "patience": True,
    "log_every": False,
    "checkpoint_every": True,
    "keep": False,
    "keep_best": False,
    "limit_train_batches": True,
    "limit_eval_batches": True,
    "overfit_batches": True,
}  # fmt: skip  (name -> whether None is allowed)


@dataclass(frozen=True)
class TrainerSettings:
    """What :class:`brim.Trainer` is told beside the model, the data and code of the user; its docstring explains each.

    ``optimizer`` and ``scheduler`` may also be objects of the user's.

    >>> TrainerSettings(epochs=3).accumulation
    1
    """

    optimizer: Any = None
    scheduler: Any = None
    lr: float = 1e-3
    epochs: int = 1
    max_steps: int | None = None
    clip_norm: float | None = None
    seed: int = 0
    deterministic: bool = False
    device: str | int | torch.device = "cuda"
    use_multi_gpu: bool = True
    strategy: str = "auto"
    micro_batch: int | str = "auto"
    gradient_accumulation_steps: int = 1
    precision: str | int = "32"
    capture: str = "auto"
    compile: bool | str | dict[str, str] = False
    threads: int | str = "auto"
    sliceable: bool | None = None
    checkpointing: str | bool | int | float | Sequence[str] | None = None
    on_nan: str = "stop"
    scale_lr: str | None = None
    eval_every: int | str = 1
    patience: int | None = None
    log_every: int = 50
    checkpoint_every: int | None = None
    keep: int = 3
    run_dir: str | Path | None = None
    accumulate_grad_batches: int | None = None
    scheduler_every: str | None = None
    keep_best: int = 1
    restore_best: bool = True
    limit_train_batches: int | None = None
    limit_eval_batches: int | None = None
    overfit_batches: int | None = None
    fast_dev_run: bool = False
    ema: float | None = None
    tier: str | None = None
    metrics: Any = None
    monitor: str | None = None
    mode: str | None = None
    loggers: Any = None
    forecast: str = "fresh"
    logits: str = "whole"
    fit: str | None = None
    memory_format: str = "preserve"

    @property
    def accumulation(self) -> int:
        """Batches of an accumulation window, by either of its names."""
        return self.accumulate_grad_batches or self.gradient_accumulation_steps

    @property
    def fixed_micro_batch(self) -> int | None:
        """The micro-batch that was asked for, if one was."""
        return None if isinstance(self.micro_batch, str) else self.micro_batch

    def check(self) -> None:
        """Raise a ConfigError for the first setting that cannot be used."""
        self._check_numbers()
        self._check_choices()
        self._check_folder()
        check_block_choice(self.checkpointing)
        Cadence.parse(self.eval_every)
        check_loggers(self.loggers)
        if isinstance(self.scheduler, str | Mapping):
            as_schedule(self.scheduler)
        self._check_together()

    def _check_numbers(self) -> None:
        for name, may_be_none in WHOLE_NUMBERS.items():
            if not may_be_none or getattr(self, name) is not None:
                check_whole(name, getattr(self, name), or_else="None" if may_be_none else "")
        if self.micro_batch != "auto":
            check_whole("micro_batch", self.micro_batch, or_else="'auto'")
        if self.threads not in ("auto", ADAPTIVE):
            check_whole("threads", self.threads, or_else=f"'auto' or {ADAPTIVE!r}")
        if isinstance(self.threads, int) and self.threads > MOST_THREADS:
            raise ConfigError(f"threads={self.threads} is more than any machine has; use 'auto', or at most its cores")
        check_positive("lr", self.lr)
        if self.clip_norm is not None:
            check_positive("clip_norm", self.clip_norm)
        if self.ema is not None:
            check_positive("ema", self.ema)
            if self.ema >= 1:
                raise ConfigError(f"ema={self.ema} must be below 1, such as 0.999: it is the decay of the average")
        seed: object = self.seed
        if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**63:
            raise ConfigError(f"seed={shorten(seed)} must be a whole number of at most 63 bits")

    def _check_choices(self) -> None:
        refuse_weights_in(self.precision)
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            is_number = name == "precision" and type(value) is int  # 16 and 32, as Lightning writes them
            check_choice(name, str(value) if is_number else value, choices)
        for name in ("deterministic", "use_multi_gpu"):
            if isinstance(value := getattr(self, name), str) or value not in (True, False):  # "no", and 4 of GPUs
                raise ConfigError(f"{name}={shorten(value)} must be True or False")

    def _check_folder(self) -> None:
        if self.run_dir is not None and not isinstance(self.run_dir, str | Path):
            raise ConfigError(f"run_dir={shorten(self.run_dir)} is no path; give the name of a folder")
        if isinstance(self.run_dir, str) and not self.run_dir.strip():
            raise ConfigError("run_dir='' names no folder; use None for a new one under runs/, or '.' for this one")

    def _check_together(self) -> None:
        """Settings that exclude one another."""
        if self.fit == "auto" and self.strategy in ("fsdp", "dp"):
            raise ConfigError(
                f"fit='auto' plans one GPU, or ranks with a replica each, and strategy={self.strategy!r} does neither; "
                "leave fit out, and choose micro_batch=, checkpointing= and logits= yourself"
            )
        if (compiler := Compiler.of(self.compile)) is not None:
            compiler.check_capture(self.capture)
            compiler.check_logits(self.logits)
        if self.mode is not None and self.monitor is None:
            raise ConfigError(
                f"mode={self.mode!r} says in which direction a metric gets better, and monitor= names none; pass it too"
            )
        self._check_accumulation()
        if self.overfit_batches is not None and self.limit_train_batches is not None:
            raise ConfigError("overfit_batches and limit_train_batches both say how long an epoch is; pass one of them")
        if self.sliceable is False and self.micro_batch != "auto":
            raise ConfigError(
                f"sliceable=False forbids splitting, and micro_batch={self.micro_batch} asks for it; "
                "leave micro_batch='auto'"
            )

    def _check_accumulation(self) -> None:
        one, other = self.gradient_accumulation_steps, self.accumulate_grad_batches
        if other is not None and one not in (1, other):
            raise ConfigError(
                f"gradient_accumulation_steps={one} and accumulate_grad_batches={other} are two names of one setting; "
                "pass one of them"
            )


def check_positive(name: str, value: Any) -> None:
    """Refuse anything but a number above 0, with where a rate by group or by step is said."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:
        raise ConfigError(f"{name}={shorten(value)} must be a number above 0{_what_else(name, value)}")


def _what_else(name: str, value: Any) -> str:
    if name == "clip_norm":
        return ", or None for no clipping"
    if name != "lr" or not (callable(value) or isinstance(value, Mapping | Sequence)) or isinstance(value, str):
        return ""
    return (
        "; rates by group are optimizer={'name': 'AdamW', 'lr_of': {'head': 1e-3}}, and one that changes is "
        "scheduler=lambda optimizer: LambdaLR(optimizer, lambda step: ...)"
    )
