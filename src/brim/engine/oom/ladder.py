"""What is left when micro-batches of one sample do not fit: each rung costs something, and is taken where it helps."""

from collections.abc import Callable, Iterator
from inspect import getattr_static
from typing import Any

from torch import Tensor, nn

from brim.engine.oom.activation_checkpointing import Checkpointing
from brim.model_blocks import AUTO, BlockChoice
from brim.sizes import show_bytes

Estimate = Callable[[], int | None]
"""Bytes that the forecast says the model takes as it is now; None where it cannot say."""


class Ladder:
    """Activation checkpointing, then encodings computed in every step instead of kept; each of them once."""

    def __init__(self, model: nn.Module | None, checkpointing: BlockChoice) -> None:
        self.model: Any = model
        self.checkpointing = None if model is None else Checkpointing(model)
        self._may_checkpoint = checkpointing is not False
        if checkpointing not in (None, AUTO) and self.checkpointing is not None:
            self.checkpointing.apply(checkpointing)  # False: an earlier run with this model may have put it on
        self._rungs = self._climb_down()
        self._estimate: Estimate = lambda: None

    @property
    def leaves_blocks_open(self) -> bool:
        """Whether nobody has decided which blocks are computed again."""
        return self._may_checkpoint and self.checkpointing is not None and not self.checkpointing.is_on

    def next(self, estimate: Estimate) -> str | None:
        """Take the next rung, and say what it is and what it costs; None at the end of the ladder."""
        self._estimate = estimate
        return next(self._rungs, None)

    def _climb_down(self) -> Iterator[str]:
        blocks = self.checkpointing
        if blocks is not None and self.leaves_blocks_open and blocks.blocks:
            told = self._take(blocks.apply, blocks.remove)
            if told is not None:
                yield f"the activations of {len(blocks.blocks)} blocks are computed again, a third slower{told}"
        cached = cache_bytes(self.model)
        if cached:
            told = self._take(lambda: self._switch_cache(False), lambda: self._switch_cache(True))
            if told is not None:
                yield f"encodings of {show_bytes(cached)} are computed in every step instead of kept, slower{told}"

    def _switch_cache(self, kept: bool) -> None:
        self.model.use_cache = kept

    def _take(self, change: Callable[[], None], undo: Callable[[], None]) -> str | None:
        """Make a change; what the forecast says about it, or None where that is nothing: then it is undone."""
        before = self._estimate()
        change()
        after = self._estimate()
        if before is None or after is None:
            return ""
        if after < before:
            return f" (forecast {show_bytes(after)} instead of {show_bytes(before)})"
        undo()
        return None


def cache_bytes(model: Any) -> int:
    """What a model with cached encodings keeps of them."""
    if model is None or not getattr(model, "use_cache", False):
        return 0
    kept = [
        getattr(module, name, None)
        for module in model.modules()
        for name in getattr_static(module, "cache_buffers", ())
    ]
    return sum(buffer.numel() * buffer.element_size() for buffer in kept if isinstance(buffer, Tensor))
