"""The speed of a training step made in different ways, for the training that a configuration describes."""

import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import nn

from brim.bench.step_rate import StepRate, measure_step_rate
from brim.config.load import RunConfig
from brim.config.workload import open_workload
from brim.engine.calling.memory_format import CHANNELS_LAST, PRESERVE
from brim.engine.components.optimizer import make_optimizer
from brim.engine.components.precision import NAMES, refuse_weights_in
from brim.engine.components.settings import check_choice, shorten
from brim.errors import BrimError, ConfigError, Preempted, first_line, said
from brim.hardware import DeviceChoice, choose_device, inventory
from brim.workloads.quiet import quietly
from brim.workloads.sections import trainer_arguments
from brim.workloads.workload import Workload

ROUNDS = 3
PROFILED_S = 0.2  # enough for thousands of short kernels, and for few enough to add up quickly
LEAST_S, MOST_S = 0.1, 3600.0
NEVER = 1_000_000_000
UNTIL_STOPPED = {"epochs": NEVER, "max_steps": None, "eval_every": NEVER, "checkpoint_every": NEVER}
EAGER = "eager"


@dataclass
class Way:
    """A way to make the step: what it changes of the trainer's arguments, and what was measured or why nothing was."""

    name: str
    changes: dict[str, Any]
    reason: str = ""
    rates: list[float] = field(default_factory=list)
    gpu_busy: float | None = None
    precision: str = ""  # where several are compared
    memory: int | None = None  # bytes that torch reserved on the GPU

    @property
    def label(self) -> str:
        return f"{self.name}, {self.precision}" if self.precision else self.name

    @property
    def samples_per_second(self) -> float | None:
        """The median over rounds; None where it does not work."""
        return median(self.rates) if self.rates else None


@dataclass(frozen=True)
class StepBench:
    """All ways, measured in turns; others are compared with the first, the eager one in the first precision."""

    device: DeviceChoice
    batch_size: int
    ways: list[Way]

    def ratio(self, way: Way) -> float | None:
        """How many times as fast as the eager step."""
        rate, eager = way.samples_per_second, self.ways[0].samples_per_second
        return None if rate is None or eager is None else rate / eager

    def as_json(self) -> dict[str, Any]:
        ways = [
            {"way": way.name, "precision": way.precision or None, "samples_per_second": way.samples_per_second,
             "ratio": self.ratio(way), "gpu_busy": way.gpu_busy, "memory": way.memory, "reason": way.reason or None,
             "rounds": way.rates}
            for way in self.ways
        ]  # fmt: skip
        return {"device": str(self.device.device), "batch_size": self.batch_size, "ways": ways}


READING = "reading the data"


def bench_step(
    config: RunConfig,
    seconds: float,
    tell: Callable[[str], Any] = lambda sentence: None,
    precisions: Sequence[str] = (),
    channels_last: bool = False,
) -> StepBench:
    """Time each way for ``seconds`` in several rounds, in each of ``precisions``; without any, in the configured one.

    ``channels_last``: each way also with the channels of convolutions last. ``tell`` hears what is being done. A way
    that fails is left out from then on, with the reason; where the eager one fails, the first, its error is raised.
    """
    for precision in precisions:
        refuse_weights_in(precision)
        check_choice("precision", precision, NAMES)
    if not (math.isfinite(seconds) and LEAST_S <= seconds <= MOST_S):
        raise ConfigError(f"seconds={shorten(seconds)} must be a number from {LEAST_S} to {MOST_S:.0f}")
    settings = trainer_arguments(config.trainer)
    device = choose_device(settings["device"], inventory(), settings["use_multi_gpu"])
    tell(READING)
    workload = open_workload(config)
    facts = workload.read()
    layouts = (PRESERVE, CHANNELS_LAST) if channels_last else ("",)
    ways = [
        way
        for precision in precisions or ("",)
        for layout in layouts
        for way in ways_of(config, facts.decided, precision, layout)
    ]
    for number in range(ROUNDS):
        for way in ways[number:] + ways[:number]:
            if not way.reason:
                tell(f"round {number + 1} of {ROUNDS}: {way.label}")
                _take_turn(way, workload, seconds / ROUNDS, must_work=way is ways[0])
    if device.device.type == "cuda":  # after all rounds, so that no profiler is near them
        for way in ways:
            if not way.reason:
                tell(f"how busy the GPU is: {way.label}")
                _take_turn(way, workload, min(seconds, PROFILED_S), profiled=True)
    return StepBench(device, facts.batch_size, ways)


def ways_of(
    config: RunConfig, decided: frozenset[str] = frozenset(), precision: str = "", memory_format: str = ""
) -> list[Way]:
    """The ways to make a step, the eager one first. ``decided``: arguments that code of the user's decides.

    ``precision``, ``memory_format``: instead of the configured ones.
    """
    settings = trainer_arguments(config.trainer)
    compiler = settings["compile"] or True
    optimizer, lr = settings["optimizer"], settings["lr"]
    if "optimizer" in decided:
        unfused, why = {}, "the workload brings its own optimizer"
    else:
        unfused = {"optimizer": not_fused(optimizer, lr)}
        why = "" if is_fused(optimizer, lr) else "the configured optimizer is not fused"
    ways = [
        Way(EAGER, {**unfused, "compile": False, "capture": "off"}),
        Way("fused", {"compile": False, "capture": "off"}, why),
        Way("compiled", {"compile": compiler, "capture": "off"}),
        Way("captured", {"compile": False, "capture": "require"}),
        Way("compiled and captured", {"compile": compiler, "capture": "require"}),
    ]
    if precision:
        reason = "the workload decides its precision" if "precision" in decided else ""
        for way in ways:
            way.precision, way.reason = precision, way.reason or reason
            way.changes["precision"] = precision
    for way in ways if memory_format else ():
        way.name += ", channels last" if memory_format == CHANNELS_LAST else ""
        way.reason = way.reason or ("the workload decides its memory_format" if "memory_format" in decided else "")
        way.changes["memory_format"] = memory_format
    return ways


def is_fused(optimizer: str | dict[str, Any] | None, lr: float) -> bool:
    """Whether brim makes the fused one of it."""
    return bool(make_optimizer(optimizer, nn.Linear(1, 1), lr).defaults.get("fused"))


def not_fused(optimizer: str | dict[str, Any] | None, lr: float) -> str | dict[str, Any] | None:
    """The same optimizer as torch makes it where nobody asks for the fused one.

    >>> not_fused("Adam", 0.1)
    {'name': 'Adam', 'fused': None}
    """
    if not is_fused(optimizer, lr):
        return optimizer
    given = {"name": optimizer} if isinstance(optimizer, str) else dict(optimizer or {})
    return {**given, "fused": None}  # with False torch would go through the weights one by one, which is slower still


def _take_turn(
    way: Way, workload: Workload, seconds: float, profiled: bool = False, must_work: bool = False
) -> None:  # fmt: skip
    try:
        rate = _measure(way, workload, seconds, profiled)
    except Preempted:
        raise Preempted("asked to stop by the system before everything was measured; start it again") from None
    except Exception as error:  # compilers and models fail in ways of their own
        if profiled:  # its rate is known, and stays
            way.reason = f"not profiled: {reason_of(error)}"
            return
        if must_work:
            raise
        way.reason, way.rates = reason_of(error), []
        return
    way.changes["threads"] = rate.threads  # found in the first round, where the CPU computes and nobody had decided
    if profiled:
        way.gpu_busy = rate.gpu_busy
    else:
        way.rates.append(rate.samples_per_second)
        way.memory = max(way.memory or 0, rate.memory) if rate.memory is not None else way.memory


def _measure(way: Way, workload: Workload, seconds: float, profiled: bool) -> StepRate:
    gc.collect()  # what the turn before held, also where it failed
    torch.cuda.empty_cache()
    if way.changes["compile"]:
        torch.compiler.reset()  # else torch gives up compiling after a few models that come from the same code
    with quietly():
        # Without a shorter last batch: nothing is compiled or captured for it while the time is taken.
        trainer = workload.build_trainer(whole_batches=True, **UNTIL_STOPPED, **way.changes)
        return measure_step_rate(trainer, seconds, profiled)


def reason_of(error: Exception) -> str:
    """An error in one short line, without its advice: nobody chose this way.

    >>> reason_of(ValueError("no compiler\\nand a long story"))
    'ValueError: no compiler'
    """
    if isinstance(error, BrimError):
        return first_line(error).removeprefix("capture='require', and ").partition("; ")[0]
    return said(error)
