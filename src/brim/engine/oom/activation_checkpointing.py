"""Activation checkpointing: blocks whose activations are computed again in the backward pass instead of being kept.

The same mathematics and, on the same device, the same bits; about a third more computation. State dicts keep their
names: the blocks' ``forward`` is replaced on the instance, nothing is wrapped.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from brim.data.randomness.generators import PythonGenerators
from brim.engine.sandbox.places import Place
from brim.engine.sandbox.python_state import attribute_places, structure_places
from brim.model_blocks import BlockChoice, chosen_blocks

LARGE, SMALL = 16 << 20, 1 << 20  # bytes of buffers and of frozen weights that are kept for the second pass
LIBRARIES = ("torch.", "transformers.", "peft.")
BEFORE = "_forward_before_checkpointing"


class Checkpointing:
    """Blocks of a model, computed again in the backward pass from :meth:`apply` to :meth:`remove`."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.blocks = chosen_blocks(model, True)

    @property
    def is_on(self) -> bool:
        """Whether any module is computed again."""
        return any(is_checkpointed(module) for module in self._model.modules())

    def apply(self, choice: BlockChoice = True) -> None:
        """Compute these blocks again and no others: all, or such as ``Trainer(checkpointing=)`` chooses."""
        chosen = chosen_blocks(self._model, choice)
        self.remove(but_for=chosen.values())
        for block in chosen.values():
            if not is_checkpointed(block):
                _recompute(block)

    def remove(self, but_for: Iterable[nn.Module] = ()) -> None:
        """Keep activations as a plain model does, those of an earlier run's choice included."""
        kept = set(but_for)
        for block in self._model.modules():
            if is_checkpointed(block) and block not in kept:
                _keep_activations(block)


@contextmanager
def checkpointing_put_back(model: nn.Module) -> Iterator[None]:
    """Afterwards the same blocks are computed again as before, usually none: what a run chose is over with it.

    A loop of the user's own, a copy or a pickled model after ``fit`` have the ``forward`` that they had.
    """
    before = {module: is_checkpointed(module) for module in model.modules()}
    try:
        yield
    finally:
        for module in {**before, **dict.fromkeys(model.modules())}:  # a callback may have put in others
            was_on = before.get(module, False)
            if was_on and not is_checkpointed(module):
                _recompute(module)
            elif is_checkpointed(module) and not was_on:
                _keep_activations(module)


def _recompute(block: nn.Module) -> None:
    block.__dict__[BEFORE] = block.__dict__.get("forward")  # one that a user had put there
    block.__dict__["forward"] = MethodType(forward, block)


def _keep_activations(block: nn.Module) -> None:
    before = block.__dict__.pop(BEFORE, None)
    if before is None:
        block.__dict__.pop("forward", None)  # the class's own is there again
    else:
        block.__dict__["forward"] = before


def is_checkpointed(block: nn.Module) -> bool:
    """Whether the block's activations are computed again; what it computes itself is under ``BEFORE`` then."""
    return getattr(block.__dict__.get("forward"), "__func__", None) is forward


def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """A block's forward that keeps nothing but its inputs, where gradients are wanted at all.

    A method, and of this name: copies of a model must compute with their own weights, and pickled ones find it again.
    """
    before = self.__dict__.get(BEFORE)
    plain = MethodType(type(self).forward, self) if before is None else before
    if not torch.is_grad_enabled():
        return plain(*args, **kwargs)
    handed = [*args, *kwargs.values()]
    return checkpoint(plain, *args, use_reentrant=False, context_fn=lambda: _contexts(self, handed), **kwargs)


def _contexts(block: nn.Module, handed: list[Any]) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """The second pass begins as the first one did, and leaves everything as the first one left it.

    torch restores its own generators; Python's and numpy's, buffers, parameters without a gradient, what users' code
    keeps in Python and what it does to objects that it is ``handed`` (a cache of keys and values) are restored here.
    """
    return nullcontext(), _Repeating(PythonGenerators.now(), _BlockState.of(block, handed))


class _Repeating:
    """Around a second pass; torch enters it again for each graph that goes through it: for gradients of gradients."""

    def __init__(self, drawn: PythonGenerators, begun: "_BlockState") -> None:
        self._drawn, self._begun = drawn, begun
        self._before: list[tuple[PythonGenerators, _BlockState]] = []

    def __enter__(self) -> None:
        self._before.append((PythonGenerators.now(), self._begun.of_now()))
        self._drawn.restore()
        self._begun.restore()

    def __exit__(self, *_: object) -> None:
        now, ended = self._before.pop()
        ended.restore()
        now.restore()


class _BlockState:
    """What the forward pass of a block may move without a gradient, at one moment."""

    def __init__(self, tensors: list[tuple[dict[str, Any], str]], places: list[Place]) -> None:
        self._holders = tensors
        self._tensors = [(tensor := holder[name], tensor.detach().clone()) for holder, name in tensors]
        self._places = places
        self._taken = [place.take() for place in places]

    @classmethod
    def of(cls, block: nn.Module, handed: list[Any]) -> "_BlockState":
        small = [
            (holder, name)
            for module in block.modules()
            for holder in (module._buffers, module._parameters)
            for name, tensor in holder.items()
            if tensor is not None and not tensor.requires_grad and _may_move(tensor)
        ]
        return cls(small, _attributes_of(block) + structure_places(*handed))

    def of_now(self) -> "_BlockState":
        return _BlockState(self._holders, self._places)

    @torch.no_grad()
    def restore(self) -> None:
        for (holder, name), (tensor, copy) in zip(self._holders, self._tensors, strict=True):
            if holder[name] is not tensor:
                holder[name] = tensor
            tensor.detach().copy_(copy)
        for place, taken in zip(self._places, self._taken, strict=True):
            if place.is_changed(taken):
                place.put(taken)


def _may_move(tensor: Tensor) -> bool:
    """Masks and tables do not, nor do frozen weights of some size: copies of those would be missed elsewhere."""
    most = SMALL if isinstance(tensor, nn.Parameter) else LARGE
    return tensor.dtype != torch.bool and not tensor.is_meta and tensor.numel() * tensor.element_size() <= most


def _attributes_of(block: nn.Module) -> list[Place]:
    """What users' modules keep in Python: counters, lists, objects that they share. Libraries' keep nothing there."""
    users = [module for module in block.modules() if not type(module).__module__.startswith(LIBRARIES)]
    own = [place for module in users for place in attribute_places(module)]
    return own + structure_places(*[value for module in users for value in vars(module).values()])
