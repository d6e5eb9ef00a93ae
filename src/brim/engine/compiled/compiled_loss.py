"""The loss of a batch through ``torch.compile``, put into the model's blocks for the time of each call.

Nothing stays on the user's model between two calls: copies of it, its checkpoints, callbacks and evaluations of the
user's own see the modules as they were handed over.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from brim.data import Batch
from brim.engine.calling.compiler import BLOCK, Compiler
from brim.engine.captured.inputs import read_window
from brim.engine.compiled.batch_shapes import BatchShapes, VaryingDimensions, Way
from brim.engine.compiled.block_groups import block_groups, callers_of
from brim.engine.compiled.caches_off import caching_configs, without_caches
from brim.engine.components.loss import CountedLoss, LossOf
from brim.engine.oom.activation_checkpointing import BEFORE, is_checkpointed


class CompiledLoss:
    """What ``counted.plain`` computes, compiled. ``in_training``: only where gradients are wanted, eager elsewhere.

    ``is_sharded``: FSDP gathers weights around the blocks, and what does that is not compiled.
    """

    is_compiled = True

    def __init__(
        self, counted: CountedLoss, compiler: Compiler, in_training: bool = False, is_sharded: bool = False
    ) -> None:
        assert counted.model is not None
        self.plain, self.model, self.compiler = counted.plain, counted.model, compiler
        self.in_training = in_training
        groups = block_groups(self.model) if compiler.per == BLOCK or is_sharded else []
        self.groups = [_Group(blocks, compiler) for blocks in groups]
        blocks = [block for group in self.groups for block in group.blocks]
        callers = [] if is_sharded else callers_of(self.model, blocks)
        self._callers = {one: _uncompiled(one) for one in callers}
        self._whole: dict[Way, LossOf] = dict.fromkeys(Way if is_sharded else (Way.EAGER,), self.plain)
        self._forwards: dict[Way, dict[nn.Module, Callable[..., Any]]] = {}
        self._shapes: dict[tuple[bool, bool], BatchShapes] = {}  # by mode
        self.caching = caching_configs(self.model, counted.loss_fn) if blocks else []

    def __call__(self, batch: Batch) -> Any:
        if self.in_training and not torch.is_grad_enabled():
            return self.plain(batch)
        tensors, key = read_window([batch])
        shapes = self._shapes_now()
        way = shapes.way(tensors, key)
        if way is Way.DYNAMIC:
            shapes.varying.mark(tensors)
        if way not in self._whole:
            self._whole[way] = compiled(_loss_of, self.compiler, self.plain)
        with without_caches(self.caching), self._in_blocks(way):
            return self._whole[way](batch)

    def note(self, batch: Batch) -> None:
        """See the shape of a batch that is computed without this."""
        self._shapes_now().note(*read_window([batch]))

    @property
    def shapes_vary(self) -> bool:
        return any(shapes.vary for shapes in self._shapes.values())

    def _shapes_now(self) -> BatchShapes:
        return self._shapes.setdefault((self.model.training, torch.is_grad_enabled()), BatchShapes())

    def _in_blocks(self, way: Way) -> AbstractContextManager[None]:
        """Blocks by their compiled functions, called from modules that run as plain Python.

        An eager way has blocks as well: they remember what they are called with, and code for any shape is right at
        once.
        """
        if way not in self._forwards:
            of_blocks = {block: group.forward(block, way) for group in self.groups for block in group.blocks}
            self._forwards[way] = of_blocks if way is Way.EAGER else of_blocks | self._callers
        return forwards_replaced(self._forwards[way])


class _Group:
    """Blocks that one compiled function serves."""

    def __init__(self, blocks: list[nn.Module], compiler: Compiler) -> None:
        self.blocks = blocks
        self.compiler = compiler
        self.varying = VaryingDimensions()
        self._compiled: dict[Way, Callable[..., Any]] = {}

    def forward(self, block: nn.Module, way: Way) -> Callable[..., Any]:
        """What computes this block."""
        if way is not Way.EAGER and way not in self._compiled:
            self._compiled[way] = compiled(_forward_of, self.compiler)
        function, forward = self._compiled.get(way, _forward_of), type(block).forward

        def call(*args: Any, **kwargs: Any) -> Any:
            tensors = self._note(args, kwargs)
            if way is Way.DYNAMIC:
                self.varying.mark(tensors)
            return function(forward, block, args, kwargs)  # type: ignore[no-untyped-call]

        return call

    def _note(self, args: Any, kwargs: Any) -> list[Tensor]:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        self.varying.note([tuple(tensor.shape) for tensor in tensors])
        return tensors


def _forward_of(forward: Callable[..., Any], block: nn.Module, args: Any, kwargs: Any) -> Any:
    return forward(block, *args, **kwargs)


def _loss_of(plain: LossOf, batch: Batch) -> Any:
    return plain(batch)


def compiled(function: Any, compiler: Compiler, *first: Any) -> Callable[..., Any]:
    """``function``, compiled as code of its own, with ``first`` before whatever it is called with.

    torch keeps what it has compiled by code object, and gives up after a few variants: trainers that come one after the
    other would use up each other's.
    """
    own = FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
    made = torch.compile(own, **compiler.arguments())
    return (lambda *args: made(*first, *args)) if first else made


def _uncompiled(module: nn.Module) -> Callable[..., Any]:
    """Its ``forward`` as plain Python, also where the call of it is compiled: its blocks are, each for itself."""
    own: Callable[..., Any] = torch.compiler.disable(module.forward, reason="its blocks are compiled")  # type: ignore[no-untyped-call]
    return own


@contextmanager
def forwards_replaced(replaced: dict[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Other ``forward`` methods for a while; below activation checkpointing, which then repeats the same."""
    places = [(vars(module), BEFORE if is_checkpointed(module) else "forward") for module in replaced]
    before = [place.get(name, forwards_replaced) for place, name in places]
    try:
        for (place, name), forward in zip(places, replaced.values(), strict=True):
            place[name] = forward
        yield
    finally:
        for (place, name), own in zip(places, before, strict=True):
            if own is forwards_replaced:  # there was none
                place.pop(name, None)
            else:
                place[name] = own
