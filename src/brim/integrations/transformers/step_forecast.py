"""How much memory the steps of a transformers.Trainer will take, from its first batch and its settings."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from brim.data import batch_length
from brim.engine.components.optimizer import optimizer_like
from brim.engine.oom.memory_watch import usable_memory
from brim.engine.sandbox.trial_call import trial_call
from brim.engine.step.resized import batches_like
from brim.errors import BrimError
from brim.hardware import inventory
from brim.hardware.cards import card_of
from brim.memory.forecast import Forecast, Setting, forecast_trace, make_job, make_setting, trace_on
from brim.memory.planning.estimates import ModelWithLoss
from brim.memory.planning.largest import Search
from brim.memory.trace.steps import BF16_TRUE, Job
from brim.sizes import show_bytes


@dataclass(frozen=True)
class StepForecast:
    """``largest``: the samples that fit, where the batch does not; 0 where none does. ``limit``: what can be used."""

    made: Forecast
    limit: int
    largest: int | None = None

    @property
    def fits(self) -> bool:
        return self.largest is None

    def sentence(self, accumulation: int) -> str:
        """For people: what a step takes, and what to set where that is too much.

        ``accumulation``: what ``gradient_accumulation_steps`` is now.
        """
        said = (
            f"memory forecast: {show_bytes(self.made.reserved)} of {show_bytes(self.limit)} that can be used, for "
            f"batches of {self.made.batch_size} on {self.made.card.name}"
        )
        if self.largest is None:
            return said
        if self.largest == 0:
            return f"{said}; not even one sample fits: use gradient_checkpointing=True, bf16=True or a smaller model"
        size = max(n for n in range(1, self.largest + 1) if self.made.batch_size % n == 0)
        steps = accumulation * (self.made.batch_size // size)
        return (
            f"{said}; it will not fit: per_device_train_batch_size={size} with gradient_accumulation_steps={steps} "
            "trains the same batch"
        )


def why_not_forecast(args: Any, card: str | None) -> str:
    """Why nothing can be said of this training's memory; empty where it can."""
    if args.device.type != "cuda" and card is None:
        return "there is no GPU here; name one with BrimCallback(card=...)"
    if args.torch_compile:
        return "torch_compile=True computes with other kernels than those that are known"
    if getattr(args, "fsdp", None) or getattr(args, "deepspeed", None):
        return "the model is sharded by FSDP or DeepSpeed"
    return ""


def forecast_steps(model: nn.Module, optimizer: Any, batch: Any, args: Any, card: str | None) -> StepForecast:
    """By a trace on fake tensors; the model is called on trial, without a trace in it or in any generator."""
    setting, length = _setting(args, card), batch_length(batch)
    job = _job(model, _unwrapped(optimizer), batch, args)
    with trial_call(model, device=args.device, but_for=[model]), torch.autocast(args.device.type, enabled=False):
        made = forecast_trace(trace_on(job, length, setting), job, length, setting)
        limit = made.limit if card is not None else usable_memory(args.device)
        if made.reserved <= limit:
            return StepForecast(made, limit)
        try:
            return StepForecast(made, limit, Search(job, setting, limit).largest(at_most=max(1, length - 1)))
        except BrimError:
            return StepForecast(made, limit, 0)


def _setting(args: Any, card: str | None) -> Setting:
    gpus = max(1, args.world_size)
    found = card if card is not None else card_of(inventory().gpus[args.device.index or 0])
    return make_setting(found, None, None, gpus, "ddp" if gpus > 1 else "single")


def _job(model: nn.Module, optimizer: Optimizer, batch: Any, args: Any) -> Job:
    return make_job(
        ModelWithLoss(model, _own_loss), batches_like(batch), precision=_precision(model, args),
        optimizer=lambda parameters: optimizer_like(optimizer, parameters),
        accumulation=args.gradient_accumulation_steps, clip_norm=args.max_grad_norm or None,
    )  # fmt: skip


def _own_loss(model: nn.Module, batch: Any) -> Any:
    """The loss that the model computes of its labels, as the Trainer asks for it."""
    outputs = model(**batch)
    return outputs["loss"] if isinstance(outputs, dict) else outputs[0]


def _precision(model: nn.Module, args: Any) -> str:
    if args.bf16 or args.fp16:
        return "bf16-mixed" if args.bf16 else "16-mixed"
    return BF16_TRUE if {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16} else "32"


def _unwrapped(optimizer: Any) -> Optimizer:
    """torch's own: Accelerate puts another one around it."""
    inside: Optimizer = getattr(optimizer, "optimizer", optimizer)
    return inside
