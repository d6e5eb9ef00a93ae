"""How much memory a training step will take on a card, before anything runs."""

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from brim.arguments.known import explained_call
from brim.errors import ConfigError, a_type
from brim.hardware import inventory
from brim.hardware.cards import H200, Card, card_of, find_card
from brim.logits.chunked_head import WHOLE
from brim.memory.allocator.peak import Holder, find_peak, reserved_range
from brim.memory.calibration import Calibration, calibration_of
from brim.memory.context import libraries_of
from brim.memory.parallel import PARALLEL, trace_of_rank
from brim.memory.trace.accumulation import sums_in_place
from brim.memory.trace.steps import BF16_TRUE, Batch, Job, trace_steps
from brim.memory.trace.trace import Trace
from brim.model_blocks import BlockChoice, check_block_choice
from brim.sizes import check_whole, show_bytes
from brim.user_line import users_stacklevel

ModelLike = nn.Module | Callable[[], nn.Module]
OptimizerMaker = Callable[[Iterable[nn.Parameter]], Optimizer]
PRECISIONS = {
    "32": "32", "fp32": "32", "32-true": "32", "32-ieee": "32", "tf32": "tf32", "bf16": "bf16", "bf16-mixed": "bf16",
    "fp16": "fp16", "16": "fp16", "16-mixed": "fp16", BF16_TRUE: BF16_TRUE,
}  # fmt: skip


@dataclass(frozen=True)
class Forecast:
    """Predicted peak memory of a training step on one GPU, in bytes; `forecast` makes it.

    Args:
        card: the card that it is for.
        batch_size: samples of one GPU in a step.
        precision: which was forecast.
        allocated: torch's peak, ``torch.cuda.max_memory_allocated``.
        reserved: torch's peak, ``torch.cuda.max_memory_reserved``.
        device: what NVML shows as used on the card, at the upper end where convolutions leave doubt.
        device_band: from where to where that may be.
        parts: what ``device`` adds up from.
        phase: in which the peak is: forward, backward, optimizer, or an evaluation, by its batch or because averaged
            weights take over.
        holders: the largest storages alive at the peak, with the module and the line they come from.
        notes: what the forecast could not know.
        gpus: how many share the training.
        strategy: how.

    >>> import torch
    >>> made = forecast(lambda: torch.nn.Linear(512, 512), lambda n: ((torch.empty(n, 512),), {}), batch_size=64,
    ...                 card="NVIDIA H200")
    >>> made.allocated <= made.reserved <= made.device == sum(made.parts.values())
    True
    """

    card: Card
    batch_size: int
    precision: str
    allocated: int
    reserved: int
    device: int
    device_band: tuple[int, int]
    parts: dict[str, int]
    phase: str
    holders: tuple[Holder, ...] = ()
    notes: tuple[str, ...] = ()
    gpus: int = 1
    strategy: str = "single"

    @property
    def limit(self) -> int:
        """What torch may reserve on this card: all of it, less the context."""
        return self.card.memory - self.parts["context"] + self.card.driver_reserve

    @property
    def fits(self) -> bool:
        return self.reserved <= self.limit

    @property
    def captured(self) -> int:
        """What a step that is captured as a CUDA graph keeps for itself at most: all but what stands between steps."""
        return self.reserved - self.parts["parameters"] - self.parts["optimizer"] - self.parts["average"]

    def explain(self) -> str:
        """The largest storages at the peak, one a line."""
        lines = [f"peak in the {self.phase}: {show_bytes(self.allocated)} allocated, of which"]
        for holder in self.holders:
            where = " ".join(part for part in (holder.module, holder.line) if part)
            lines.append(f"  {show_bytes(holder.size):>12}  {holder.kind:<12} {holder.operator}  {where}".rstrip())
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "card": self.card.name, "batch_size": self.batch_size, "precision": self.precision, "gpus": self.gpus,
            "strategy": self.strategy, "allocated": self.allocated, "reserved": self.reserved, "device": self.device,
            "device_band": list(self.device_band), "limit": self.limit, "fits": self.fits, "parts": self.parts,
            "captured": self.captured, "peak_in": self.phase, "holders": [vars(holder) for holder in self.holders],
            "notes": list(self.notes),
        }  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """Where and how a job runs: everything that decides its memory apart from the job and the batch size."""

    card: Card
    runtime: tuple[int, int]
    expandable: bool = False
    gpus: int = 1
    strategy: str = "single"
    bucket_views: bool = False
    calibration: Calibration = field(default_factory=Calibration)


@explained_call
def forecast(
    model: ModelLike,
    batch: Callable[[int], Batch],
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: OptimizerMaker | None = None,
    *,
    batch_size: int,
    precision: str = "32",
    card: str | Card | None = None,
    runtime: str | None = None,
    accumulation: int = 1,
    clip_norm: float | None = None,
    expandable_segments: bool | None = None,
    gpus: int = 1,
    strategy: str = "single",
    ema: float | None = None,
    logits: str = WHOLE,
    checkpointing: BlockChoice = None,
    evaluation: int | None = None,
    gradient_as_bucket_view: bool = False,
) -> Forecast:
    """Predict the peak memory of training ``model``, on a machine that need not have a GPU. Nothing is allocated.

    Args:
        model: a function that builds it, or a model that exists.
        batch: gives ``(args, kwargs)`` of one forward call at a batch size.
        loss: makes a loss of the model's output; by default the output, or its ``.loss``.
        optimizer: makes an optimizer of the parameters; by default torch's AdamW.
        batch_size: samples of one GPU in a step.
        precision: as :class:`brim.Trainer` takes it.
        card: the name of a known card; by default the one in this machine, and where there is none an NVIDIA H200.
        runtime: the torch version whose rules apply; by default the one installed.
        accumulation: batches whose gradients are added up before an optimizer step.
        clip_norm: whether gradients are clipped, which takes memory.
        expandable_segments: the allocator's setting; by default as ``PYTORCH_CUDA_ALLOC_CONF`` says.
        gpus: how many share the training.
        strategy: ``"single"``, ``"ddp"``, ``"dp"`` or ``"fsdp"``: what copies or shards take is counted too; of
            DataParallel on its first GPU.
        ema: the decay of a moving average of the weights, which is one more copy of them; None for none.
        logits: ``"whole"``, or ``"chunked"`` or ``"auto"`` as :class:`brim.Trainer` takes it.
        checkpointing: blocks that are computed again in the backward pass, as :class:`brim.Trainer` takes them.
        evaluation: samples that an evaluation computes at once between steps; None for none.
        gradient_as_bucket_view: as torch's DistributedDataParallel takes it.

    Raises:
        ModelError: where the model or the loss fails on fake tensors, with its line.

    >>> f = forecast(lambda: nn.Linear(512, 512), lambda n: ((torch.empty(n, 512),), {}), lambda out: out.sum(),
    ...              batch_size=64, card="NVIDIA H200")
    >>> f.parts["parameters"]
    1050624
    """
    setting = make_setting(card, runtime, expandable_segments, gpus, strategy)
    if gradient_as_bucket_view:
        setting = _with_bucket_views(setting, accumulation)
    named = precision_on(setting.card, precision)
    job = make_job(
        model, batch, loss, optimizer, named, accumulation, clip_norm, ema, logits, checkpointing, evaluation
    )
    check_whole("batch_size", batch_size)
    return forecast_trace(trace_on(job, batch_size, setting), job, batch_size, setting)


def trace_on(job: Job, batch_size: int, setting: Setting) -> Trace:
    """The trace of one GPU of the setting."""
    return as_on_one_gpu(trace_steps(job, batch_size, setting.card, setting.runtime), job, setting)


def as_on_one_gpu(recorded: Trace, job: Job, setting: Setting) -> Trace:
    """What one GPU of the setting does in a trace as it was recorded: sums in place, its copies or its shards."""
    has_short_gradients = job.precision == BF16_TRUE
    one = sums_in_place(recorded)
    return trace_of_rank(one, setting.strategy, setting.gpus, has_short_gradients, setting.bucket_views)


def forecast_trace(trace: Trace, job: Job, batch_size: int, setting: Setting, cap: int | None = None) -> Forecast:
    """The forecast that follows from the trace of one GPU, which must fit under the cap if there is one."""
    peak = find_peak(trace, setting.expandable, cap)
    context = setting.calibration.context_of(setting.card, *libraries_of(trace))
    reserved = peak.reserved + setting.calibration.extra_reserved
    outside = context.size + setting.card.driver_reserve
    # Where convolutions make reserved memory uncertain, the device's figure is the upper end: it shall not be too low.
    low, high = reserved_range(trace, setting.expandable) if cap is None else (peak.reserved, peak.reserved)
    doubt = max(0, high - peak.reserved)
    parts = {**peak.parts, "context": outside, "fragmentation": reserved - peak.allocated + doubt}
    band = (reserved - max(0, peak.reserved - low) + context.low, reserved + doubt + context.high)
    return Forecast(
        setting.card, batch_size, job.precision, peak.allocated, reserved, reserved + doubt + outside,
        (band[0] + setting.card.driver_reserve, band[1] + setting.card.driver_reserve), parts, peak.phase,
        peak.holders, tuple(trace.notes), setting.gpus, setting.strategy,
    )  # fmt: skip


def make_job(
    model: ModelLike,
    batch: Callable[[int], Batch],
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: OptimizerMaker | None = None,
    precision: str = "32",
    accumulation: int = 1,
    clip_norm: float | None = None,
    ema: float | None = None,
    logits: str = WHOLE,
    checkpointing: BlockChoice = None,
    evaluation: int | None = None,
) -> Job:
    """The job, with what the user left out filled in."""
    if str(precision) not in PRECISIONS:
        raise ConfigError(f"precision={precision!r} is not known; use one of {', '.join((*PRECISIONS, 'auto'))}")
    check_whole("accumulation", accumulation)
    check_block_choice(checkpointing)
    if evaluation is not None:
        check_whole("evaluation", evaluation)
    if clip_norm is not None and (isinstance(clip_norm, bool) or not isinstance(clip_norm, int | float)):
        raise ConfigError(f"clip_norm={clip_norm!r} must be a number")
    if ema is not None and (isinstance(ema, bool) or not isinstance(ema, int | float) or not 0 < ema < 1):
        raise ConfigError(f"ema={ema!r} must be a number between 0 and 1: it is the decay of an average")
    return Job(
        model, batch, loss or loss_in, optimizer or AdamW, PRECISIONS[str(precision)], accumulation, clip_norm, ema,
        logits, tuple(checkpointing) if isinstance(checkpointing, list) else checkpointing, evaluation,
    )  # fmt: skip


def make_setting(
    card: str | Card | None, runtime: str | None, expandable: bool | None, gpus: int = 1, strategy: str = "single"
) -> Setting:
    """The card and the rules that apply to it."""
    if strategy not in PARALLEL:
        raise ConfigError(f"strategy={strategy!r} is not known to the forecast; use one of {', '.join(PARALLEL)}")
    check_whole("gpus", gpus)
    chosen = choose_card(card)
    version = parse_runtime(runtime)
    expands = _expandable_in_environment() if expandable is None else expandable
    return Setting(chosen, version, expands, gpus, strategy, calibration=calibration_of(chosen, version))


def _with_bucket_views(setting: Setting, accumulation: int) -> Setting:
    if setting.strategy != "ddp":
        raise ConfigError(
            f"gradient_as_bucket_view=True is one of DDP, and strategy={setting.strategy!r} has no buckets"
        )
    if accumulation > 1:
        raise ConfigError(
            f"gradient_as_bucket_view=True with accumulation={accumulation} is not forecast: what of it is in buckets "
            "depends on no_sync in your loop; leave it out, for at most one more copy of the gradients"
        )
    return replace(setting, bucket_views=True)


def precision_on(card: Card, precision: str) -> str:
    """The precision that ``auto`` means on a card, as the trainer chooses it; any other is left as it is."""
    if precision != "auto":
        return precision
    return "bf16" if card.is_capable_of_bf16 else "fp16"


def choose_card(card: str | Card | None) -> Card:
    """A card by name; without one the card in this machine, and without that, with a warning, the assumed one."""
    if isinstance(card, Card):
        return card
    if card is not None:
        return find_card(card)
    if (assumed := assumed_card()) is None:
        return card_of(inventory().gpus[0])
    warnings.warn(
        f"no GPU is here and no card is named, so this forecast is about the {assumed.name}; name another with "
        "card=, such as card='RTX 4090'",
        stacklevel=users_stacklevel(),
    )
    return assumed


def assumed_card() -> Card | None:
    """The card that forecasts are about where none is named and none is in this machine; None where there is one."""
    return None if inventory().gpus else H200


def parse_runtime(runtime: str | None) -> tuple[int, int]:
    """A torch version as two numbers."""
    text = torch.__version__ if runtime is None else str(runtime)
    try:
        major, minor = (int(part) for part in text.split("+")[0].split(".")[:2])
    except ValueError as error:
        raise ConfigError(f"runtime={runtime!r} is not a torch version; write it as '2.11'") from error
    return major, minor


def loss_in(output: Any) -> Tensor:
    """The loss that an output is or has: models of transformers compute it themselves."""
    if isinstance(output, Mapping) and "loss" in output:
        output = output["loss"]
    elif isinstance(getattr(output, "loss", None), Tensor):
        output = output.loss
    if not isinstance(output, Tensor):
        raise ConfigError(f"the model gives {a_type(output)}; say with loss= how it becomes a loss")
    return output if output.dim() == 0 else output.float().mean()


def _expandable_in_environment() -> bool:
    text = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    return "expandable_segments:true" in text.lower().replace(" ", "")
