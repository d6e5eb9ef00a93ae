"""A traced step, with what its blocks hold and what they take to compute."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from brim.hardware.cards import Card
from brim.hardware.peaks import Peak
from brim.memory.forecast import Setting, as_on_one_gpu
from brim.memory.trace.handed_objects import tensors_in
from brim.memory.trace.steps import Job
from brim.memory.trace.trace import Storage, Trace
from brim.model_blocks import AUTO, chosen_blocks
from brim.speed_up.step_time import StepTime, gpu_seconds, host_seconds, step_time
from brim.speed_up.work import WorkCounter, count_work


@dataclass(frozen=True)
class BlockCost:
    """A block by its name, and the seconds of one forward pass through it."""

    name: str
    host: float
    gpu: float


@dataclass(frozen=True)
class CountedStep:
    """A trace at a batch size, the time of its passes, and its blocks.

    ``owner``: for each storage the place of the block whose forward pass made it, or -1. ``outputs``: the storages that
    blocks hand on, which stay where the block is computed again. ``left``: those that they leave in objects of the
    caller's, which stay as long as those do.
    """

    samples: int
    trace: Trace
    time: StepTime
    blocks: tuple[BlockCost, ...]
    owner: list[int]
    outputs: frozenset[int]
    left: frozenset[int]


class BlockCounter(WorkCounter):  # type: ignore[no-untyped-call]
    """A counter that also knows which operators and storages are whose."""

    def __init__(self, card: Card, runtime: tuple[int, int], precision: str) -> None:
        super().__init__(card, runtime, precision)
        self.names: dict[str, str] = {}  # of blocks: in the user's model, and in the traced one
        self.calls: list[tuple[str, int, int]] = []  # which block, from and to which operator of the forward pass
        self.outputs: list[Storage] = []
        self.left: list[Storage] = []  # in objects that a block was handed, such as a cache
        self._begun: list[int] = []

    def watch_modules(self, model: nn.Module) -> None:
        super().watch_modules(model)
        blocks = {block: name for name, block in chosen_blocks(model, True).items()}
        for traced, module in model.named_modules():
            if module in blocks:
                self.names[blocks[module]] = traced
                module.register_forward_pre_hook(self._begin)
                end = partial(self._end, blocks[module])
                module.register_forward_hook(end, with_kwargs=True)

    def enter(self, phase: str) -> None:
        if phase == "batch" and self.phase == "optimizer":
            self.calls.clear()
        super().enter(phase)

    def _begin(self, *call: Any) -> None:
        self._begun.append(len(self.operators.get(self.phase, ())))

    def _end(self, name: str, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        began = self._begun.pop()
        if self.phase == "forward":
            self.calls.append((name, began, len(self.operators["forward"])))
            self.outputs += self._storages(leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor))
            self.left += self._storages(tensors_in([*args, *kwargs.values()]))

    def _storages(self, tensors: Iterable[Tensor]) -> list[Storage]:
        return [storage for storage in map(self.storage_of, tensors) if storage is not None]


def count_step(job: Job, samples: int, setting: Setting, peak: Peak) -> CountedStep:
    """Trace a step at a batch size; blocks are told where they are not decided already."""
    counter = BlockCounter(setting.card, setting.runtime, job.precision)
    traced, work = count_work(job, samples, setting.card, setting.runtime, counter)
    trace = as_on_one_gpu(traced, job, setting)
    is_open = job.checkpointing in (None, AUTO)
    blocks = _costs(counter, work.passes, peak) if is_open else ()
    prefixes = {counter.names[block.name]: place for place, block in enumerate(blocks)}

    def numbers(storages: list[Storage]) -> frozenset[int]:
        known = {id(storage) for storage in storages}
        return frozenset(number for number, storage in enumerate(trace.storages) if id(storage) in known)

    return CountedStep(
        samples,
        trace,
        step_time(work, peak),
        blocks,
        [_owner(storage, prefixes) for storage in trace.storages],
        numbers(counter.outputs),
        numbers(counter.left),
    )


def _costs(counter: BlockCounter, passes: int, peak: Peak) -> tuple[BlockCost, ...]:
    costs = []
    for name in counter.names:
        spans = [counter.operators["forward"][start:stop] for block, start, stop in counter.calls if block == name]
        if spans:
            host, gpu = (sum(map(host_seconds, spans)), sum(gpu_seconds(span, peak) for span in spans))
            costs.append(BlockCost(name, host / passes, gpu / passes))
    return tuple(costs)


def _owner(storage: Storage, prefixes: dict[str, int]) -> int:
    if storage.phase != "forward":
        return -1
    parts = storage.module.split(".")
    ends = range(len(parts), 0, -1)
    return next((prefixes[name] for end in ends if (name := ".".join(parts[:end])) in prefixes), -1)
