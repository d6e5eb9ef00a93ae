"""Which shapes come, and so whether a batch is computed by code for its shape, by code for any, or eagerly.

Code for any shape is slower, and every shape that is new costs seconds. So the first shape gets its own code; a shorter
last batch, which is rare, is computed eagerly; and where shapes really vary, all of them go through code in which the
dimensions that vary are dynamic.
"""

from collections.abc import Hashable, Sequence
from enum import Enum

import torch
from torch import Tensor

RARE = 0.1  # of the passes: other shapes that come more often than that are worth code of their own
LEAST_OTHERS = 2  # a loader whose first batch is short has one
MOST_SHAPES = 64  # that are remembered; dimensions that vary are known by then
Shape = tuple[int, ...]


class Way(Enum):
    """How a batch is computed."""

    EAGER = "eager"
    STATIC = "static"
    DYNAMIC = "dynamic"


class VaryingDimensions:
    """Of tensors that come again and again, in the same order: the dimensions whose sizes differ.

    >>> varying = VaryingDimensions()
    >>> varying.note([(4, 8)]); varying.note([(4, 9)])
    >>> varying.found
    {(0, 1)}
    """

    def __init__(self) -> None:
        self.found: set[tuple[int, int]] = set()  # (which tensor, which dimension)
        self._first: list[Shape] | None = None

    def note(self, shapes: Sequence[Shape]) -> None:
        """Look at the shapes of one more pass."""
        if self._first is None or [len(one) for one in shapes] != [len(one) for one in self._first]:
            self._first = [tuple(shape) for shape in shapes]
            return
        for number, (shape, first) in enumerate(zip(shapes, self._first, strict=True)):
            if shape != first:
                self.found |= {(number, place) for place, size in enumerate(shape) if size != first[place]}

    def has_single(self, tensors: Sequence[Tensor]) -> bool:
        """Whether one of them is of length 1 now: torch makes code of its own for that."""
        return any(t < len(tensors) and d < tensors[t].dim() and tensors[t].shape[d] < 2 for t, d in self.found)

    def mark(self, tensors: Sequence[Tensor]) -> None:
        """Tell torch of them, before it makes code for these tensors."""
        for number, place in self.found:
            if number < len(tensors) and place < tensors[number].dim():
                torch._dynamo.maybe_mark_dynamic(tensors[number], place)


class BatchShapes:
    """The shapes of the batches of one mode, training or evaluation, as they come."""

    def __init__(self) -> None:
        self.varying = VaryingDimensions()
        self._first: Hashable = None
        self._passes = self._others = 0
        self._seen: set[Hashable] = set()
        self._is_dynamic = False

    def way(self, tensors: Sequence[Tensor], key: Hashable) -> Way:
        """How this batch is computed; ``key`` is the same for batches of the same shape."""
        self.note(tensors, key)
        if self._is_dynamic:
            return Way.EAGER if self.varying.has_single(tensors) else self.usual
        return self.usual if key == self._first else Way.EAGER

    def note(self, tensors: Sequence[Tensor], key: Hashable) -> None:
        """Count a batch, which may be computed by other means as well."""
        self._first = key if self._first is None else self._first
        self._passes += 1
        if key not in self._seen and len(self._seen) < MOST_SHAPES:
            self._seen.add(key)
            self.varying.note([tuple(tensor.shape) for tensor in tensors])
        if key != self._first:
            self._others += 1
            self._is_dynamic |= self._others >= max(LEAST_OTHERS, RARE * self._passes)

    @property
    def usual(self) -> Way:
        """How most batches are computed: where shapes vary much, by code for any of them."""
        return Way.DYNAMIC if self._is_dynamic else Way.STATIC
