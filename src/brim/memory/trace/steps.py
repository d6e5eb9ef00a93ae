"""The training steps that a forecast is about, run on fake tensors."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import getattr_static
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves, tree_map

from brim.errors import ConfigError, ModelError, a_type
from brim.gradient_sums import GradientSums
from brim.hardware.cards import Card
from brim.logits.chunked_head import WHOLE, chunked_logits
from brim.memory.as_cuda.mode import as_cuda
from brim.memory.trace.average import TracedAverage
from brim.memory.trace.building import build
from brim.memory.trace.recomputation import recompute_blocks
from brim.memory.trace.repeat import repeat_last_step
from brim.memory.trace.trace import Recorder, Trace
from brim.model_blocks import BlockChoice
from brim.module_modes import set_training_modes
from brim.sizes import show_bytes
from brim.uncompiled import uncompiled
from brim.user_line import users_errors

Batch = tuple[tuple[Any, ...], dict[str, Any]]
BF16_TRUE = "bf16-true"
DTYPES = {"32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16, BF16_TRUE: None}  # of autocast
STEPS = 3
RECIPES = {
    "model": "lambda: MyModel()",
    "batch": "lambda n: ((torch.empty(n, 16),), {}), the (args, kwargs) of one forward call",
    "loss": "lambda output: output.mean(), of what forward returns",
    "optimizer": "lambda parameters: torch.optim.AdamW(parameters)",
}


@dataclass(frozen=True)
class Job:
    """What is trained: a recipe, of which nothing is made before the forecast makes it of fake tensors."""

    model: Callable[[], nn.Module] | nn.Module
    batch: Callable[[int], Batch]
    loss: Callable[[Any], Tensor]
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]
    precision: str = "32"
    accumulation: int = 1
    clip_norm: float | None = None
    ema: float | None = None
    logits: str = WHOLE
    checkpointing: BlockChoice = None
    evaluation: int | None = None  # samples of an evaluation, after the steps

    def __post_init__(self) -> None:
        for name, example in RECIPES.items():
            if not callable(given := getattr(self, name)):
                raise ConfigError(f"{name}= is {a_type(given)}; it is a function here: {name}={example}")


def trace_steps(
    job: Job,
    batch_size: int,
    card: Card,
    runtime: tuple[int, int],
    steps: int = STEPS,
    recorder: Recorder | None = None,
) -> Trace:
    """The storages of so many training steps at a batch size, the model's move to the card included.

    ``recorder``: one that looks at more than that.
    """
    recorder = recorder or Recorder(card, runtime)
    with _as_if_training(), uncompiled(), as_cuda(card, runtime, recorder), recorder:
        model = build(job.model, recorder)
        set_training_modes(model)
        recompute_blocks(model, job.checkpointing)
        _give_shapes(model, job, batch_size, recorder)
        if job.precision == BF16_TRUE:
            model.bfloat16()
        with _failing_with_a_bound(model, recorder):
            _move_to_the_card(model, recorder)
            average = None if job.ema is None else TracedAverage(model, recorder)
            recorder.watch_modules(model)
            with chunked_logits(model, job.logits, recorder.note):
                _train(job, model, batch_size, recorder, steps, average)
        return recorder.finish()


@contextmanager
def _failing_with_a_bound(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """What is known all the same is told with the failure: what was taken for data, and the least that training takes.

    A wrong branch may be why it fails.
    """
    try:
        yield
    except ModelError as error:
        least = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
        least += sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)
        known = [note for note in recorder.trace.notes if "only the data knows" in note]
        bound = f"weights, buffers and gradients alone take {show_bytes(least)}"
        raise ModelError("; ".join([str(error), *known, bound])) from error


@contextmanager
def _as_if_training() -> Iterator[None]:
    """With gradients, whatever the caller's mode is. Indices are drawn for real, so generators are put back."""
    with torch.inference_mode(False), torch.enable_grad(), generators_put_back():
        yield


@contextmanager
def generators_put_back(gpus: Sequence[int] = ()) -> Iterator[None]:
    """The generators of Python, numpy and torch are afterwards what they were: the user's code may draw from all."""
    python, of_numpy = random.getstate(), np.random.get_state(legacy=False)
    try:
        with torch.random.fork_rng(gpus):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(of_numpy)


def _give_shapes(model: nn.Module, job: Job, batch_size: int, recorder: Recorder) -> None:
    """Lazy modules get their parameters in a first forward pass, which is no part of training."""
    if not _without_shape(model):
        return
    with users_errors("making a batch"):
        args, kwargs = _on_the_card(job.batch(batch_size), recorder)  # before weights and data have another type
    dtype = DTYPES[job.precision]
    autocast = torch.autocast("cuda", dtype, enabled=dtype is not None)
    with users_errors("the first forward pass, which gives lazy modules their shapes,"), torch.no_grad(), autocast:
        model(*args, **kwargs)
    for name in _without_shape(model):
        raise ModelError(f"{name} has no shape after a forward pass; leave out the lazy module that it belongs to")


def _without_shape(model: nn.Module) -> list[str]:
    return [name for name, tensor in (*model.named_parameters(), *model.named_buffers()) if is_lazy(tensor)]


def _train(
    job: Job, model: nn.Module, batch_size: int, recorder: Recorder, steps: int, average: TracedAverage | None
) -> None:
    recorder.watching = True
    with users_errors("making the optimizer"):
        optimizer = job.optimizer([p for p in model.parameters() if p.requires_grad])
    if not isinstance(optimizer, Optimizer):
        raise ConfigError(f"optimizer= returned {a_type(optimizer)}; it must return a torch optimizer")
    recorder.watching = False
    _name_optimizer_state(optimizer, model, recorder)
    dtype = DTYPES[job.precision]
    scale = torch.ones(()) if job.precision == "fp16" else None
    for step in range(steps):
        if step == 2 and repeat_last_step(recorder.trace):
            break
        sums = GradientSums(list(model.parameters()), job.accumulation)
        for micro_step in range(job.accumulation):
            args, kwargs = _next_batch(job, batch_size, recorder)  # only now does the last batch go
            if micro_step == 0:
                optimizer.zero_grad(set_to_none=True)
            recorder.enter("forward")
            recorder.watching = True
            is_last = micro_step == job.accumulation - 1
            if is_last:
                sums.give()
            with (
                users_errors("the forward pass", lambda: recorder.failed_in),
                torch.autocast("cuda", dtype, enabled=dtype is not None),
            ):
                loss = job.loss(model(*args, **kwargs))
            recorder.enter("backward")
            with users_errors("the backward pass"):
                (loss if scale is None else loss * scale).backward()
            _name_gradients(model, recorder)
            if not is_last:
                sums.take()
                _name_sums(sums, recorder)
            _name_caches(model, recorder)
            recorder.watching = False
        _step_optimizer(job, model, optimizer, recorder, average)
    if average is not None:
        average.put_in_place()
    if job.evaluation is not None:
        _evaluate(job, job.evaluation, model, recorder)


def _evaluate(job: Job, samples: int, model: nn.Module, recorder: Recorder) -> None:
    """The loss of so many samples without gradients, beside all that stands between two steps."""
    model.eval()
    dtype = DTYPES[job.precision]
    with users_errors("making a batch to evaluate"):
        args, kwargs = _on_the_card(job.batch(samples), recorder, is_short=job.precision == BF16_TRUE)
    recorder.enter("evaluation")
    for tensor in tree_leaves((args, kwargs)):
        if isinstance(tensor, Tensor):
            recorder.record_copy(tensor, "activations")
    recorder.watching = True
    with (
        users_errors("the forward pass of an evaluation", lambda: recorder.failed_in),
        torch.no_grad(),
        torch.autocast("cuda", dtype, enabled=dtype is not None),
    ):
        job.loss(model(*args, **kwargs))
    recorder.watching = False


def _next_batch(job: Job, batch_size: int, recorder: Recorder) -> Batch:
    recorder.enter("batch")
    with users_errors("making a batch"):
        made = _on_the_card(job.batch(batch_size), recorder, is_short=job.precision == BF16_TRUE)
    for tensor in tree_leaves(made):
        if isinstance(tensor, Tensor):
            recorder.record_copy(tensor, "batch")
    return made


def _step_optimizer(
    job: Job, model: nn.Module, optimizer: Optimizer, recorder: Recorder, average: TracedAverage | None
) -> None:
    recorder.enter("optimizer")
    recorder.watching = True
    if job.clip_norm is not None:
        with users_errors("clipping the gradients"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), job.clip_norm)
    with users_errors("the optimizer's step"):
        optimizer.step()
    if average is not None:
        average.update()
    recorder.watching = False
    _name_optimizer_state(optimizer, model, recorder)


def _on_the_card(batch: Any, recorder: Recorder, is_short: bool = False) -> Batch:
    """The batch as it is once it was copied: every tensor fake and in a storage of its own.

    ``is_short``: floating-point numbers became bfloat16 on the way.
    """
    if not isinstance(batch, tuple) or len(batch) != 2 or not isinstance(batch[1], dict):
        raise ModelError(
            "batch= must give (args, kwargs): a tuple of the forward call's arguments, and a dict of its keywords"
        )

    def copied(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return leaf.copy()  # which the model may write into, and not into the user's
        if not isinstance(leaf, Tensor):
            return leaf
        if (parts := recorder.sparse_parts(leaf)) is not None:
            indices, values = map(copied, parts)
            return torch.sparse_coo_tensor(indices, values, leaf.shape, is_coalesced=leaf.is_coalesced())
        if is_short and leaf.is_floating_point():
            return torch.empty(leaf.shape, dtype=torch.bfloat16)
        if not isinstance(leaf, FakeTensor):
            fake = torch.empty(leaf.shape, dtype=leaf.dtype)
            if not leaf.is_floating_point() and not leaf.is_complex():
                recorder.know(fake, leaf)
            return fake
        own = leaf.untyped_storage().nbytes() == leaf.numel() * leaf.element_size()
        return leaf if own else leaf.clone()

    moved: Batch = tree_map(copied, batch)
    return moved


def _move_to_the_card(model: nn.Module, recorder: Recorder) -> None:
    """In the order of ``model.cuda()``: children first, then a module's own parameters and buffers."""
    recorder.enter("move")
    for path, module in _children_first(model, ""):
        for name, parameter in module._parameters.items():
            if parameter is not None:
                recorder.record_copy(parameter, "parameters", f"{path}{name}")
        if isinstance(module, nn.RNNBase) and module.weight_ih_l0.dtype != torch.bfloat16:
            # cuDNN wants the weights in one piece; torch copies them together when the module is moved.
            recorder.record_flattened([p for p in module._parameters.values() if p is not None], path)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                recorder.record_copy(buffer, "buffers", f"{path}{name}")
        for name, value in vars(module).items():  # a graph is seldom a buffer: its user moves it to the card
            if isinstance(value, Tensor) and recorder.sparse_parts(value) is not None:
                recorder.record_copy(value, "buffers", f"{path}{name}")
    _name_caches(model, recorder)


def _children_first(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        yield from _children_first(child, f"{path}{name}.")
    yield path, module


def _name_caches(model: nn.Module, recorder: Recorder) -> None:
    """What a module computes once and keeps; it says so in ``cache_buffers``, the names of those buffers."""
    for path, module in model.named_modules():
        for name in getattr_static(module, "cache_buffers", ()):
            if isinstance(getattr(module, name, None), Tensor):
                recorder.label(getattr(module, name), "cache", f"{path}.{name}")


def _name_gradients(model: nn.Module, recorder: Recorder) -> None:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            recorder.label(parameter.grad, "gradients", name)


def _name_sums(sums: GradientSums, recorder: Recorder) -> None:
    for tensor in sums.sums:
        recorder.label(tensor, "gradients", "")


def _name_optimizer_state(optimizer: Optimizer, model: nn.Module, recorder: Recorder) -> None:
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    for parameter, state in optimizer.state.items():
        for tensor in tree_leaves(dict(state)):
            if isinstance(tensor, Tensor):
                recorder.label(tensor, "optimizer", names.get(parameter, ""))
