"""What more GPUs would bring: the step time of one batch, shared by 1, 2, 4 and 8 of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brim.errors import ConfigError
from brim.hardware.cards import H200, Card
from brim.hardware.links import LINKS, Link, find_link, link_of
from brim.hardware.peaks import Peak, peak_of
from brim.memory.forecast import ModelLike, OptimizerMaker, make_job, make_setting, precision_on
from brim.memory.planning.window import StepBatches
from brim.memory.trace.steps import Batch
from brim.model_blocks import BlockChoice
from brim.sizes import check_whole, parse_memory
from brim.speed_up.clock import StepClock
from brim.speed_up.measured_step import device_here
from brim.speed_up.rank_batches import RankBatches, ShareFit
from brim.speed_up.scaled import Scaled, SpeedUp
from brim.speed_up.scaling import STRATEGIES, Together

USUAL_GPUS = (1, 2, 4, 8)
BETWEEN_CPUS = LINKS["ethernet-25"]


def speed_up(
    model: ModelLike,
    batch: Callable[[int], Batch],
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: OptimizerMaker | None = None,
    *,
    batch_size: int,
    gpus: Sequence[int] = USUAL_GPUS,
    link: str | Link | None = None,
    step_ms: float | None = None,
    measure: bool = False,
    precision: str = "32",
    card: str | Card | None = None,
    memory: str | int | None = None,
    runtime: str | None = None,
    clip_norm: float | None = None,
    sliceable: bool | None = None,
    accumulation: int = 1,
    micro_batch: int | None = None,
    prefetched: int = 0,
    ema: float | None = None,
    logits: str = "whole",
    checkpointing: BlockChoice = None,
    tell: Callable[[str], None] = lambda doing: None,
) -> SpeedUp:
    """Forecast the step time of 1, 2, 4 and 8 GPUs that share each batch, with DataParallel, DDP and FSDP2.

    The arguments are those of `plan`. The step time of one GPU is ``step_ms`` if it is given, measured with a few real
    steps on the device that is here with ``measure=True``, and else a rough forecast. ``link`` is a name ("pcie4"),
    what was measured ("45GB/s"), or a `Link`; by default what usually connects these cards. ``tell`` hears what is
    being done, for some of it takes seconds.

    >>> import torch
    >>> from torch import nn
    >>> made = speed_up(lambda: nn.Linear(4096, 4096), lambda n: ((torch.empty(n, 4096),), {}), batch_size=65536,
    ...                 card="NVIDIA H200", gpus=(1, 2))
    >>> made.row(1).speed_up, 1 < made.row(2, "ddp").speed_up <= 2
    (1.0, True)
    """
    check_whole("batch_size", batch_size)
    batches = StepBatches(sliceable, accumulation, micro_batch, prefetched).checked()
    counts = _checked_counts(gpus)
    device = _device_to_measure(measure, card, step_ms)
    on_cpu = device is not None and device.type == "cpu"
    setting = make_setting(H200 if on_cpu else card, runtime, None)  # memory and peaks of a CPU are not asked for
    kind = "32" if on_cpu and precision == "auto" else precision_on(setting.card, precision)
    job = make_job(
        model, batch, loss, optimizer, kind, clip_norm=clip_norm, ema=ema, logits=logits, checkpointing=checkpointing
    )  # fmt: skip
    rank_batches = RankBatches(job, setting, None if memory is None else parse_memory(memory), batches)
    peak = None if on_cpu else peak_of(setting.card)
    clock = StepClock(rank_batches, peak, device)
    if peak is None and device is None and step_ms is None:
        raise ConfigError(
            f"how fast {setting.card.name} computes is not known, so its step cannot be forecast; give the time of a "
            "step with --step-ms or step_ms=, or measure it there with --measure"
        )
    chosen = _chosen_link(link, setting.card, on_cpu)
    scaler = Scaler(rank_batches, clock, chosen, peak, batch_size, on_cpu, _checked_seconds(step_ms))
    rows = scaler.rows(counts, tell)
    named = "this CPU" if on_cpu else setting.card.name
    return SpeedUp(named, batch_size, accumulation, job.precision, chosen, clock.source, scaler.launching, rows)


@dataclass
class Scaler:
    """The rows, one after the other: first one GPU, which the others are compared with."""

    rank_batches: RankBatches
    clock: StepClock
    link: Link
    peak: Peak | None
    batch_size: int
    on_cpu: bool = False
    step_seconds: float | None = None
    launching: float = 0.0  # seconds that the host takes to launch a step on one GPU

    def rows(self, counts: Sequence[int], tell: Callable[[str], None]) -> tuple[Scaled, ...]:
        tell("one GPU")
        whole = self._fit("single", 1)
        if self.step_seconds is not None:
            self.clock.set_by(whole, self.step_seconds)
        time = self.clock.time(whole)
        self.launching = time.host
        rows = [self._row("single", 1, whole, time.seconds)]
        for gpus in counts:
            for strategy in self._strategies() if gpus > 1 else ():
                tell(f"{gpus} GPUs, {strategy.upper()}")
                rows.append(self._row(strategy, gpus, self._fit(strategy, gpus), time.seconds))
        return tuple(rows)

    def _strategies(self) -> tuple[str, ...]:
        if self.on_cpu:
            return ("ddp",)
        # One process cannot drive GPUs of other machines.
        return tuple(strategy for strategy in STRATEGIES if strategy != "dp" or self.link.within_machine)

    def _fit(self, strategy: str, gpus: int) -> ShareFit:
        share = -(-self.batch_size // gpus)
        if not self.on_cpu:
            return self.rank_batches.fit(share, strategy, gpus)
        micro_batch = min(share, self.rank_batches.batches.micro_batch or share)
        return ShareFit(True, micro_batch, -(-share // micro_batch), 0)

    def _row(self, strategy: str, gpus: int, fit: ShareFit, alone: float) -> Scaled:
        time, accumulation = self.clock.time(fit), self.rank_batches.batches.accumulation
        together = Together(gpus, self.link, self.peak)
        spent = together.spent(strategy, time, self.rank_batches.work(fit.micro_batch), accumulation * fit.slices)
        # A smaller share may need fewer slices, and so more than n-fold speed; nobody shall count on that.
        seconds = max(spent.seconds, alone / gpus)
        return Scaled(
            gpus, strategy, -(-self.batch_size // gpus), fit.micro_batch, fit.slices,
            None if self.on_cpu else fit.fits, None if self.on_cpu else fit.reserved, seconds, spent.exchanging,
            self.batch_size * accumulation / seconds, alone / seconds, time.is_launch_bound,
        )  # fmt: skip


def _checked_counts(gpus: Sequence[int]) -> tuple[int, ...]:
    if not gpus:
        raise ConfigError("gpus is empty; give numbers of GPUs such as 1, 2, 4, 8")
    for count in gpus:
        check_whole("gpus", count)
    if len(set(gpus)) < len(gpus):
        raise ConfigError(f"gpus={','.join(map(str, gpus))} names a number twice; give each once")
    return tuple(sorted(gpus))


def _checked_seconds(step_ms: float | None) -> float | None:
    if step_ms is None:
        return None
    is_number = isinstance(step_ms, int | float) and not isinstance(step_ms, bool)
    if not is_number or not math.isfinite(step_ms) or step_ms <= 0:
        raise ConfigError(f"step_ms={step_ms!r} must be milliseconds, more than 0")
    return step_ms / 1e3


def _device_to_measure(measure: bool, card: str | Card | None, step_ms: float | None) -> torch.device | None:
    if not measure:
        return None
    if card is not None:
        raise ConfigError("what is measured is the device that is here: leave out the card, or do not measure")
    if step_ms is not None:
        raise ConfigError("the time of a step is either measured or given: leave out one of the two")
    return device_here()


def _chosen_link(link: str | Link | None, card: Card, on_cpu: bool) -> Link:
    if isinstance(link, Link):
        return link
    if link is None:
        return BETWEEN_CPUS if on_cpu else link_of(card)
    return find_link(link, card)
