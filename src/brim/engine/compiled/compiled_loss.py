"""The loss of a batch through ``torch.compile``, put into the model's blocks for the time of each call.

Nothing stays on the user's model between two calls: copies of it, its checkpoints, callbacks and evaluations of the
user's own see the modules as they were handed over.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook
from torch.utils._pytree import tree_leaves

from brim.data import Batch
from brim.engine.calling.compiler import BLOCK, Compiler
from brim.engine.captured.host.waiting import as_if_capturing
from brim.engine.captured.inputs import read_window
from brim.engine.compiled.batch_shapes import BatchShapes, VaryingDimensions, Way
from brim.engine.compiled.block_groups import block_groups, callers_of, has_own_forward
from brim.engine.compiled.caches_off import caching_configs, without_caches
from brim.engine.components.loss import CountedLoss, LossOf
from brim.engine.oom.activation_checkpointing import BEFORE, is_checkpointed
from brim.replaced import replaced
from brim.uncompiled import compiler_stance

RECOMPILE = "Detected recompile when torch.compile stance is"
Mode = tuple[bool, bool]  # whether the model trains, and whether gradients are wanted


class CompiledLoss:
    """What ``counted.plain`` computes, compiled. ``proves``: code is only used once :meth:`proving` has let it in.

    Then evaluations are eager, and where torch would compile something anew, :class:`NeedsCompiling` is raised.
    """

    is_compiled = True

    def __init__(self, counted: CountedLoss, compiler: Compiler, proves: bool = False) -> None:
        assert counted.model is not None
        self.plain, self.model, self.compiler = counted.plain, counted.model, compiler
        self.groups = [
            _Group(blocks, compiler) for blocks in (block_groups(self.model) if compiler.per == BLOCK else [])
        ]
        self.blocks = [block for group in self.groups for block in group.blocks]
        self._callers = {one: _Caller(one) for one in callers_of(self.model, self.blocks)}
        self._others = [module for module in self.model.modules() if module not in set(self.blocks)]
        self._recomputed: dict[nn.Module, Callable[..., Any]] = {}
        self._whole: dict[Way, LossOf] = {Way.EAGER: self.plain}
        self._of_blocks: dict[Way, dict[nn.Module, Callable[..., Any]]] = {}
        self._shapes: dict[Mode, BatchShapes] = {}
        self._proven: set[tuple[Mode, Way]] | None = set() if proves else None  # None: all are taken
        self._is_proving = False
        self.caching = caching_configs(self.model, counted.loss_fn) if self.blocks else []
        self.only_blocks = False  # what is around them runs as plain Python

    def __call__(self, batch: Batch) -> Any:
        mode = self._mode()
        if self._is_left_alone(mode):
            return self.plain(batch)
        tensors, key = read_window([batch])
        shapes = self._shapes_in(mode)
        way = shapes.way(tensors, key)
        if self._is_proving:
            assert self._proven is not None
            self._proven.add((mode, way))
        elif self._proven is not None and (mode, way) not in self._proven:
            way = Way.EAGER
        if way is Way.DYNAMIC:
            shapes.varying.mark(tensors)
        if way not in self._whole:
            self._whole[way] = self.plain if self.only_blocks else compiled(_loss_of, self.compiler, self.plain)
        told = self._python_as_captured(way, tensors)
        with told, without_caches(self.caching), self._in_blocks(way), self._recomputing(way), self._compiling(way):
            return self._whole[way](batch)

    def _python_as_captured(self, way: Way, tensors: Sequence[Tensor]) -> AbstractContextManager[None]:
        """What is plain Python between compiled blocks goes the way that it goes while a stream is captured.

        Compiled as a whole it would go the same: models of transformers look at masks otherwise, for which the host
        waits for the device in every step, and blocks with a mask are other code than those without.
        """
        is_asked = bool(self.blocks) and way is not Way.EAGER and any(tensor.is_cuda for tensor in tensors)
        return as_if_capturing() if is_asked else nullcontext()

    @contextmanager
    def proving(self) -> Iterator[None]:
        """Code may be compiled, and is taken from then on; after an error, none is."""
        self._is_proving, self._proven = True, set()
        try:
            yield
        except BaseException:
            self._proven = set()
            raise
        finally:
            self._is_proving = False

    @property
    def is_proven(self) -> bool:
        """Whether the code that most batches need now has been let in."""
        proven = self._proven or set()
        return all((mode, self._shapes_in(mode).usual) in proven for mode in {mode for mode, _ in proven})

    def note(self, batch: Batch) -> None:
        """See the shape of a batch that is computed without this."""
        self._shapes_in(self._mode()).note(*read_window([batch]))

    def forget_shapes(self) -> None:
        """Batches come in other sizes from now on, and none of their shapes counts any more."""
        self._shapes.clear()

    def _mode(self) -> Mode:
        return self.model.training, torch.is_grad_enabled()

    def _is_left_alone(self, mode: Mode) -> bool:
        """Whether this is computed as it would be without a compiler, since what is compiled does not see all of it."""
        is_unproven = self._proven is not None and not mode[1]
        return is_unproven or _has_any_global_hook() or any(map(has_own_forward, self.blocks))  # type: ignore[no-untyped-call]

    def _shapes_in(self, mode: Mode) -> BatchShapes:
        return self._shapes.setdefault(mode, BatchShapes())

    def _in_blocks(self, way: Way) -> AbstractContextManager[None]:
        """Blocks by their compiled functions, called from modules that run as plain Python.

        An eager way has blocks as well: they remember what they are called with, and code for any shape is right at
        once.
        """
        if way not in self._of_blocks:
            self._of_blocks[way] = {block: group.forward(block, way) for group in self.groups for block in group.blocks}
        callers = {} if way is Way.EAGER else {one: caller.uncompiled() for one, caller in self._callers.items()}
        return forwards_replaced(self._of_blocks[way] | callers)

    def _recomputing(self, way: Way) -> AbstractContextManager[None]:
        """Modules that are computed again in the backward pass, called as plain Python: torch does not follow that."""
        if way is Way.EAGER:
            return nullcontext()
        others = [one for one in self._others if is_checkpointed(one)]
        for module in others:
            if module not in self._recomputed:
                self._recomputed[module] = _disabled(vars(module)["forward"])
        return replaced_in([(vars(module), "forward", self._recomputed[module]) for module in others])

    @contextmanager
    def _compiling(self, way: Way) -> Iterator[None]:
        """Code that is compiled in here sees hooks that are registered later; what is proven is not compiled anew."""
        if way is Way.EAGER:
            yield
        elif self._proven is None or self._is_proving:
            with replaced((torch._dynamo.config, "skip_nnmodule_hook_guards", False)):
                yield
        else:
            try:
                with compiler_stance("fail_on_recompile"):
                    yield
            except RuntimeError as error:
                if not str(error).startswith(RECOMPILE):
                    raise
                raise NeedsCompiling(_why_recompiled(str(error))) from None


class NeedsCompiling(Exception):
    """What has been proven does not fit any more; the message says why."""


def _why_recompiled(told: str) -> str:
    r"""What torch says of the guard that failed.

    >>> _why_recompiled("Detected recompile ...\n  triggered by ...\n    - 0/0: model.p == 0.5      # return ...")
    'model.p == 0.5 does not hold any more'
    >>> _why_recompiled("    - 1/0: ___as_tensor(model.p).item() == 0.5  # a number that has changed before")
    'model.p == 0.5 does not hold any more'
    """
    guards = [line.split(": ", 1)[1] for line in told.splitlines() if line.lstrip().startswith("- ") and ": " in line]
    if not guards:
        return "something else is called"
    guard = re.sub(r"___as_tensor\((.+?)\)\.item\(\)", r"\1", guards[0].split("  #")[0].strip())
    return f"{guard[:120]} does not hold any more"


class _Caller:
    """A module that calls blocks: its ``forward`` runs as plain Python, also where the call of it is compiled."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._own: Any = self  # what stood on the module when the function was made
        self._made: Callable[..., Any] = module.forward

    def uncompiled(self) -> Callable[..., Any]:
        module = self.module
        own = vars(module).get(BEFORE if is_checkpointed(module) else "forward")  # somebody may put another one there
        if own is not self._own:
            plain = MethodType(type(module).forward, module) if own is None else own
            self._own = own
            self._made = _disabled(plain)
        return self._made


def _disabled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as plain Python, also where the call of it is compiled; what it calls may be, each for itself."""
    own: Callable[..., Any] = torch.compiler.disable(function, reason="parts of it are compiled")  # type: ignore[no-untyped-call]
    return own


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


def forwards_replaced(others: dict[nn.Module, Callable[..., Any]]) -> AbstractContextManager[None]:
    """Other ``forward`` methods for a while; below activation checkpointing, which then repeats the same."""
    return replaced_in(
        [(vars(one), BEFORE if is_checkpointed(one) else "forward", forward) for one, forward in others.items()]
    )


@contextmanager
def replaced_in(places: list[tuple[dict[str, Any], str, Any]]) -> Iterator[None]:
    """Other values in dictionaries for a while."""
    before = [place.get(name, replaced_in) for place, name, _ in places]
    try:
        for place, name, value in places:
            place[name] = value
        yield
    finally:
        for (place, name, _), own in zip(places, before, strict=True):
            if own is replaced_in:  # there was none
                place.pop(name, None)
            else:
                place[name] = own
