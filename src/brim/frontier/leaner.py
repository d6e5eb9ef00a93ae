"""What would save memory and is another training, or needs other libraries: told with its forecast, never taken."""

import importlib.util
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from brim.errors import BrimError
from brim.memory.forecast import Setting, forecast_trace, trace_on
from brim.memory.trace.steps import BF16_TRUE, Batch, Job, generators_put_back

LORA = 0.01  # of the weights, about: adapters of rank 8 in the attention of a language model
EIGHT_BIT = ("torchao", "bitsandbytes")


@dataclass(frozen=True)
class Leaner:
    """A change by its name, and the bytes that it would save of what is reserved."""

    name: str
    saves: int

    def as_json(self) -> dict[str, Any]:
        return {"change": self.name, "saves": self.saves}


def leaner(job: Job, setting: Setting, samples: int) -> list[Leaner]:
    """Each change with what it would save of a step on so many samples, the most first.

    Weights in bfloat16 and a shorter sequence are traced; optimizer state in 8 bits, in host memory, or of adapters
    alone follows from the state that the trace has.
    """
    now = forecast_trace(trace_on(job, samples, setting), job, samples, setting)
    state, gradients = now.parts["optimizer"], now.parts["gradients"]
    library = next((name for name in EIGHT_BIT if importlib.util.find_spec(name) is not None), None)
    eight_bit = library or f"{EIGHT_BIT[0]} or {EIGHT_BIT[1]}, not installed here"
    found = [
        Leaner(f"an optimizer with state in 8 bits ({eight_bit})", state * 3 // 4),
        Leaner("optimizer state in host memory", state),
        Leaner("LoRA: adapters of some 1 % of the weights trained", int((1 - LORA) * (state + gradients))),
    ]
    changed = {"precision='bf16-true' (weights in 2 bytes)": replace(job, precision=BF16_TRUE)}
    if _has_words(job):
        changed["sequences of half the length"] = _shorter(job)
    for name, other in changed.items():
        found += _traced(name, other, setting, samples, now.reserved) if other != job else []
    return sorted((change for change in found if change.saves > 0), key=lambda change: -change.saves)


def _traced(name: str, job: Job, setting: Setting, samples: int, reserved: int) -> list[Leaner]:
    """By a trace; nothing where the job does not run that way."""
    try:
        made = forecast_trace(trace_on(job, samples, setting), job, samples, setting)
    except BrimError:
        return []
    return [Leaner(name, reserved - made.reserved)]


def _has_words(job: Job) -> bool:
    with generators_put_back():
        return any(_is_words(leaf) for leaf in tree_leaves(job.batch(1)))


def _shorter(job: Job) -> Job:
    """Whole numbers in rows of equal length are words: half of each row."""

    def half(n: int) -> Batch:
        shorter: Batch = tree_map(lambda leaf: leaf[:, : leaf.shape[1] // 2] if _is_words(leaf) else leaf, job.batch(n))
        return shorter

    return replace(job, batch=half)


def _is_words(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dtype == torch.long and leaf.dim() == 2 and leaf.shape[1] > 1
