"""Runs over less than all of the data: a few batches of it, or one of everything and no trace afterwards."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from brim.data import Batch, Feed, as_feed, named_feed
from brim.data.feed import ReadyBatches
from brim.data.randomness.generators import set_state, state_of
from brim.engine.components.settings import TrainerSettings
from brim.engine.evaluation.evaluation import Evaluator
from brim.engine.run_state.user_order import generators_of
from brim.engine.sandbox.python_state import CannotPutBack, PythonState
from brim.engine.state.host_copy import host_copy
from brim.errors import ConfigError, DataError
from brim.record.loggers import without_trackers
from brim.sizes import known_length


class FirstBatches:
    """The first ``number`` batches of a feed, in the order of the data.

    >>> import torch
    >>> len(list(FirstBatches(as_feed([torch.ones(2)] * 5), 3).in_order()))
    3
    """

    def __init__(self, feed: Feed, number: int) -> None:
        self.feed = feed
        self.number = number

    def __len__(self) -> int:
        length = known_length(self.feed)
        if length is None:
            raise TypeError("a stream has no length")
        return min(length, self.number)

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[Batch]:
        if start:
            raise ValueError("these are read from their beginning")
        return islice(self.feed.batches(seed, epoch), self.number)

    def in_order(self) -> Iterator[Batch]:
        return islice(self.feed.in_order(), self.number)


def limited_evaluation(data: Any, settings: TrainerSettings) -> Any:
    """The evaluation data, cut to ``limit_eval_batches``."""
    limit = settings.limit_eval_batches
    if limit is None or data is None:
        return data
    if isinstance(data, Evaluator):
        if settings.fast_dev_run:  # it knows by itself what one batch would be, so all of it is tried
            return data
        raise ConfigError(
            f"limit_eval_batches={limit}: {type(data).__name__} evaluates by itself, so its batches are not "
            "brim's to count; let it take fewer of them, or hand over the data instead"
        )
    return FirstBatches(as_feed(data), limit)


def training_feed(data: Any, settings: TrainerSettings) -> Feed:
    """The training data; with ``overfit_batches`` the first so many batches of it, the same ones in every epoch."""
    feed = named_feed(data, "train_data")
    if settings.overfit_batches is None:
        return feed
    kept = list(islice(feed.batches(settings.seed, 0), settings.overfit_batches))
    if not kept:
        raise DataError("train_data gave no batch, so there is none for overfit_batches")
    return ReadyBatches(kept, f"data: the first {len(kept):,} batches, the same ones in every epoch")


def dry_settings(settings: TrainerSettings) -> TrainerSettings:
    """With ``fast_dev_run``: one epoch of one step, evaluated on one batch."""
    if not settings.fast_dev_run:
        return settings
    patience = None if settings.patience is None else 2  # never used up, and refused without eval_data as always
    return replace(
        settings, epochs=1, max_steps=None, limit_train_batches=settings.accumulation, limit_eval_batches=1,
        overfit_batches=None, patience=patience, eval_every=1, checkpoint_every=None, log_every=1,
        loggers=without_trackers(settings.loggers),
    )  # fmt: skip


@contextmanager
def dry_folder(run_dir: str | Path | None) -> Iterator[Path]:
    """A place for the folder of a run that leaves none: beside ``run_dir``, where all ranks can see it."""
    parent = None if run_dir is None else Path(run_dir).absolute().parent
    while parent is not None and not parent.exists():
        parent = parent.parent
    home = Path(tempfile.mkdtemp(prefix=".brim-dry-run-", dir=parent))
    try:
        yield home / "run"
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def put_back(*parts: nn.Module | Optimizer | LRScheduler | Any) -> Iterator[None]:
    """The state of models, optimizers and schedules afterwards is what it was before: types, layout, gradients as well.

    A class of them, from which the run makes its own, has none.
    """
    held = [part for part in parts if hasattr(part, "state_dict") and not isinstance(part, type)]
    kept = [(part, host_copy(part.state_dict())) for part in held]
    gradients = [(p, None if p.grad is None else p.grad.clone()) for part in held for p in _parameters(part)]
    modules = [module for part in held if isinstance(part, nn.Module) for module in part.modules()]
    in_modules = {id(weight) for module in modules for weight in module._parameters.values()}
    others = {p: p.detach().clone() for part in held for p in _parameters(part) if id(p) not in in_modules}
    types, strides = [(module, _types(module)) for module in modules], _strides(modules)
    shapes = [(module, {name: _shape(one) for name, one in module._buffers.items()}) for module in modules]
    unsaved = [(module, own, host_copy(own)) for module in modules for own in [_not_in_state(module)]]
    try:
        yield
    finally:
        for module, before in types:
            _take_types(module, before)
        for weight, stride in strides:
            _take_stride(weight, stride)
        for module, known in shapes:
            _take_buffers(module, known)
        for module, own, copies in unsaved:
            for name, buffer in _not_in_state(module).items():
                module._buffers[name] = _refilled(buffer, own[name], copies[name])
        for part, state in kept:
            part.load_state_dict(state)
        for parameter, value in others.items():  # that an optimizer holds beside those of the model
            parameter.detach().copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient


@contextmanager
def python_put_back(*roots: Any, but_for: Iterable[nn.Module]) -> Iterator[str]:
    """What users' code keeps in Python is afterwards as it was; gives the reason where it cannot be."""
    try:
        state, why_not = PythonState(*roots, but_for=but_for), ""
    except CannotPutBack as error:
        state, why_not = PythonState(), str(error)
    try:
        yield why_not
    finally:
        state.restore()


@contextmanager
def generators_put_back(*data: Any) -> Iterator[None]:
    """Generators that loaders, samplers and data sets of the user's draw from stand afterwards where they stood."""
    sources = [one for given in data for one in (given.values() if isinstance(given, Mapping) else [given])]
    kept = [(generator, state_of(generator)) for source in sources for _, generator in generators_of(source)]
    try:
        yield
    finally:
        for generator, state in kept:
            set_state(generator, state)


def _parameters(part: Any) -> list[Tensor]:
    if isinstance(part, nn.Module):
        return list(part.parameters())
    return [p for group in part.param_groups for p in group["params"]] if isinstance(part, Optimizer) else []


def _types(module: nn.Module) -> dict[str, torch.dtype]:
    own = {**module._parameters, **module._buffers}
    return {name: tensor.dtype for name, tensor in own.items() if tensor is not None}


def _strides(modules: list[nn.Module]) -> list[tuple[Tensor, tuple[int, ...]]]:
    own = [weight for module in modules for weight in module._parameters.values()]
    return [(weight, weight.stride()) for weight in own if weight is not None and not is_lazy(weight)]


def _take_stride(weight: Tensor, stride: tuple[int, ...]) -> None:
    """Where ``memory_format=`` has laid weights out anew, they lie as before."""
    if weight.stride() != stride:
        laid = torch.empty_strided(weight.shape, stride, dtype=weight.dtype, device=weight.device)
        weight.grad, weight.data = None, laid.copy_(weight.data)


def _take_types(module: nn.Module, types: dict[str, torch.dtype]) -> None:
    """Where a run has cast weights, they are again of the type that they had; the parameters are the same objects."""
    for name, parameter in module._parameters.items():
        if parameter is not None and name in types and parameter.dtype != types[name]:
            parameter.grad, parameter.data = None, parameter.data.to(types[name])
    for name, buffer in module._buffers.items():
        if buffer is not None and name in types:
            module._buffers[name] = buffer.to(types[name])


def _shape(buffer: Tensor | None) -> torch.Size | None:
    return None if buffer is None else buffer.shape


def _not_in_state(module: nn.Module) -> dict[str, Tensor]:
    """Buffers that no state_dict holds."""
    own = {name: module._buffers.get(name) for name in module._non_persistent_buffers_set}
    return {name: buffer for name, buffer in own.items() if buffer is not None}


def _refilled(buffer: Tensor, before: Tensor, copied: Tensor) -> Tensor:
    """The buffer itself, which other modules may hold too, if it is the one from before; else another with its numbers.

    What has taken its place may be a part of a batch, which is the user's.
    """
    if buffer is not before or buffer.layout is not torch.strided or buffer.shape != copied.shape:
        return copied.to(buffer.device)
    is_expanded = any(size > 1 and not stride for size, stride in zip(buffer.shape, buffer.stride(), strict=True))
    if is_expanded or buffer.is_inference():  # which cannot be written to
        return copied.to(buffer.device)
    with torch.no_grad():
        return buffer.copy_(copied)


def _take_buffers(module: nn.Module, shapes: Mapping[str, torch.Size | None]) -> None:
    """Buffers that forward passes have registered are gone, those that they have filled or enlarged as they were."""
    for name, buffer in list(module._buffers.items()):
        shape = shapes.get(name)
        if name not in shapes:
            delattr(module, name)
        elif shape is None:
            module._buffers[name] = None
        elif buffer is not None and buffer.shape != shape and name not in module._non_persistent_buffers_set:
            module._buffers[name] = buffer.new_empty(shape)  # its numbers come with the state
