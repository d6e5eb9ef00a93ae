"""What can be done when a job does not fit, each with its forecast."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from torch.optim import Optimizer

from brim.errors import BrimError
from brim.hardware.cards import CARDS, Card
from brim.memory.forecast import Forecast, Setting, as_on_one_gpu, forecast_trace, trace_on
from brim.memory.trace.steps import Job, trace_steps
from brim.memory.trace.trace import Trace
from brim.sizes import show_bytes

SHARDS = (2, 4, 8)


@dataclass(frozen=True)
class Remedy:
    """One change, and what the job would reserve with it."""

    name: str
    reserved: int
    fits: bool

    @property
    def sentence(self) -> str:
        return f"{self.name}: {show_bytes(self.reserved)}{'' if self.fits else ', still too much'}"


def remedies(
    job: Job, setting: Setting, batch_size: int, limit: int, most: int = 3, more_room: str = ""
) -> list[Remedy]:
    """The most effective changes first; those after which it fits before those after which it does not.

    ``more_room`` says how one gets more of the card than the limit; without it the card has no more.
    """
    traces: dict[Job, Trace | None] = {}
    found = []
    for name, changed, where in _candidates(job, setting):
        if changed not in traces:
            traces[changed] = _recorded(changed, batch_size, setting)
        trace = traces[changed]
        if trace is not None:
            reserved = forecast_trace(as_on_one_gpu(trace, changed, where), changed, batch_size, where).reserved
            found.append(Remedy(name, reserved, reserved <= limit))
    now = forecast_trace(trace_on(job, batch_size, setting), job, batch_size, setting)
    room = _more_room(now, more_room) or _larger_card(now, setting.card)
    found = [remedy for remedy in found if remedy.reserved < now.reserved]
    ranked = sorted(found, key=lambda remedy: (not remedy.fits, remedy.reserved))
    return [*ranked[: most - 1], room] if room else ranked[:most]


def _recorded(job: Job, batch_size: int, setting: Setting) -> Trace | None:
    """The trace of the steps, or None where this change cannot be made to this model."""
    try:
        return trace_steps(job, batch_size, setting.card, setting.runtime)
    except BrimError:
        return None


def _candidates(job: Job, setting: Setting) -> Iterable[tuple[str, Job, Setting]]:
    leaner = replace(job, checkpointing=True)
    yield "activation checkpointing", leaner, setting
    if job.precision in ("32", "tf32"):
        low = "bf16" if setting.card.is_capable_of_bf16 else "fp16"
        yield f"precision={low!r}", replace(job, precision=low), setting
    yield "a fused optimizer (fused=True)", replace(job, optimizer=_fused(job.optimizer)), setting
    for gpus in SHARDS:
        if setting.gpus < gpus:
            sharded = replace(setting, gpus=gpus, strategy="fsdp")
            yield f"FSDP2 over {gpus} GPUs", job, sharded
            yield f"FSDP2 over {gpus} GPUs with activation checkpointing", leaner, sharded


def _more_room(needed: Forecast, more_room: str) -> Remedy | None:
    """More of this card, where that is enough: then not the card is too small but the limit."""
    return Remedy(more_room, needed.reserved, True) if more_room and _holds(needed.card, needed) else None


def _larger_card(needed: Forecast, card: Card) -> Remedy | None:
    """The smallest known card on which it fits as it is."""
    enough = [c for c in CARDS if c.memory > card.memory and _holds(c, needed)]
    if not enough:
        return None
    best = min(enough, key=lambda c: c.memory)
    return Remedy(f"a larger card, such as {best.name} ({show_bytes(best.memory)})", needed.reserved, True)


def _holds(card: Card, needed: Forecast) -> bool:
    return card.memory - needed.parts["context"] > needed.reserved * 1.01


def _fused(maker: Callable[..., Optimizer]) -> Callable[..., Optimizer]:
    def make(parameters: Any) -> Optimizer:
        optimizer = maker(parameters)
        if not any("fused" in group for group in optimizer.param_groups):
            raise BrimError(f"{type(optimizer).__name__} has no fused form")
        for group in optimizer.param_groups:
            group["fused"], group["foreach"] = True, False
        return optimizer

    return make
