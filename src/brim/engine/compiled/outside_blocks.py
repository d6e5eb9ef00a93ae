"""How much of a forward pass is spent outside of a model's blocks, and so what compiling that as well could gain."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise

import torch
from torch import nn


class OutsideBlocks:
    """Marks when blocks begin and end within a pass; the device is waited for at each mark."""

    def __init__(self, blocks: Iterable[nn.Module], device: torch.device) -> None:
        self.blocks, self.device = list(blocks), device
        self._marks: list[tuple[bool, float]] = []  # whether what begins here is a block, and when

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A pass is made in here."""
        with ExitStack() as stack:
            for block in self.blocks:
                stack.callback(block.register_forward_pre_hook(self._marking(True)).remove)
                stack.callback(block.register_forward_hook(self._marking(False)).remove)
            self._mark(False)
            yield
            self._mark(False)

    @property
    def share(self) -> float:
        """Of the time of the pass."""
        outside = sum(end - start for (is_block, start), (_, end) in pairwise(self._marks) if not is_block)
        return outside / (self._marks[-1][1] - self._marks[0][1])

    def _marking(self, is_block: bool) -> Callable[..., None]:
        return lambda *_: self._mark(is_block)

    def _mark(self, is_block: bool) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._marks.append((is_block, time.perf_counter()))
