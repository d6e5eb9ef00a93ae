"""Which integers of a batch are indices: a value out of bounds there ends a GPU's process, and raises nothing."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

KNOWN = ("aten", "prims", "prim")  # whose operators call what they index with by name
WITHOUT_NEGATIVES = {"embedding", "_embedding_bag", "_embedding_bag_forward_only", "gather", "index_select"}
# Their kernels read and write at the place that a label names, on the CPU too, without a look at whether it exists.
UNCHECKED = {"_ctc_loss", "_cudnn_ctc_loss", "miopen_ctc_loss"}


@dataclass(eq=False)
class IndexWatch:
    """Follows integer tensors, and what is computed of them, to the operators that index with them.

    A language model's tokens are labels as well as indices of an embedding: what its loss ignores cannot stand there.
    """

    _origins: dict[int, set[int]] = field(default_factory=dict)  # by memory: of which memory it was computed
    _indices: set[int] = field(default_factory=set)
    _never_negative: set[int] = field(default_factory=set)
    _unchecked: set[int] = field(default_factory=set)
    _alive: list[Tensor] = field(default_factory=list)  # or their memory would be that of others

    def note(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """One operator has run."""
        given: set[int] = set()
        for name, tensor in _integers(func, args, kwargs):
            origins = self._origins_of(tensor)
            given |= origins
            if "ind" in name or func.namespace not in KNOWN:
                self._indices |= origins
                if func.overloadpacket.__name__ in WITHOUT_NEGATIVES:
                    self._never_negative.add(_memory(tensor))
            if func.overloadpacket.__name__ in UNCHECKED:
                self._indices |= origins
                self._unchecked |= origins
        if given:
            for tensor in _tensors(result):
                if _is_integer(tensor):
                    self._origins_of(tensor).update(given)

    def is_index(self, tensor: Tensor) -> bool:
        """Whether it was used as an index, or something that was computed of it."""
        return _memory(tensor) in self._indices

    def is_never_negative(self, tensor: Tensor) -> bool:
        """Whether it was, as it is, an index where a negative one fails: no batch has one there."""
        return _memory(tensor) in self._never_negative

    def is_unchecked(self, tensor: Tensor) -> bool:
        """Whether a value that does not belong there would spoil the memory of the process."""
        return _memory(tensor) in self._unchecked

    def _origins_of(self, tensor: Tensor) -> set[int]:
        place = _memory(tensor)
        if place not in self._origins:
            self._alive.append(tensor)
            self._origins[place] = {place}
        return self._origins[place]


def _integers(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[str, Tensor]]:
    """The integer tensors that an operator was given, each with the name of the argument."""
    named = [(argument.name, value) for argument, value in zip(func._schema.arguments, args, strict=False)]
    for name, value in (*named, *(kwargs or {}).items()):
        yield from ((name, tensor) for tensor in _tensors(value) if _is_integer(tensor))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _is_integer(tensor: Tensor) -> bool:
    """A mask of bool is in bounds whatever it says."""
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.element_size() > 1


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
