"""How the batches of a training are padded, as the first ones show, and batches that are padded on in that way."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from brim.data import Batch
from brim.data.batches.batch import map_leaves, named_tensors
from brim.engine.captured.graph_cache import MOST_GRAPHS
from brim.engine.captured.inputs import Key, own_copy, read_window
from brim.engine.captured.padded.lengths import chosen_lengths, length_for

LOOKED_AT = 24  # batches, before lengths are chosen
KEPT = 8  # of them, to see what padding is filled with
IGNORED = -100  # by torch's criteria, and so what labels are padded with
Shapes = tuple[torch.Size, ...]


@dataclass(eq=False)
class Padding:
    """Learns from the first batches how they are padded; then says to which length each is padded on, and does it.

    Only sequences along the second and later dimensions are padded, behind their ends, and only where a mask of the
    user's says which positions are padding. Windows of several batches stay as they come.
    """

    reason: str = ""  # why nothing is padded
    lengths: list[int] = field(default_factory=list)  # chosen, ascending
    _shapes: list[Shapes] = field(default_factory=list)
    _kept: list[list[Batch]] = field(default_factory=list)
    _places: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by tensor: its dimensions that are padded
    _fills: dict[int, Any] = field(default_factory=dict)
    _usual: Shapes = ()  # of the first batch that counts; the padded dimensions may differ

    @property
    def is_learning(self) -> bool:
        return not self.reason and not self.lengths

    def learn(self, window: Sequence[Batch]) -> None:
        """Look at a batch; at the last one it is settled."""
        if len(window) != 1:
            self.reason = "several batches make a step"
            return
        shapes = _shapes_of(read_window(window)[0])
        self._shapes.append(shapes)
        if len(self._kept) < KEPT and shapes not in self._shapes[:-1]:
            self._kept.append(own_copy(window))
        if len(self._shapes) == LOOKED_AT:
            self.reason = self._settle() or ""
            self._shapes, self._kept = [], []

    def read(self, window: Sequence[Batch]) -> tuple[list[Tensor], Key]:
        """The tensors of a window and the key of its shape, of :func:`read_window`, padded on where they are to be."""
        tensors, key = read_window(window)
        length = self._length_for(tensors)
        if length is None:
            return tensors, key
        numbers = iter(range(len(tensors)))  # shapes stand in the key in the order of the tensors
        padded = [
            self._padded_shape(part, next(numbers), length) if isinstance(part, torch.Size) else part for part in key
        ]
        return [self._padded(tensor, number, length) for number, tensor in enumerate(tensors)], tuple(padded)

    def padded(self, window: Sequence[Batch]) -> list[Batch]:
        """The window, padded on where it is to be."""
        tensors = iter(self.read(window)[0])
        return [map_leaves(lambda leaf: next(tensors) if isinstance(leaf, Tensor) else leaf, one) for one in window]

    def _length_for(self, tensors: Sequence[Tensor]) -> int | None:
        """To which length a batch of these tensors is padded; None where it stays as it is."""
        if not self.lengths or len(tensors) != len(self._usual):
            return None
        own = self._own_length(_shapes_of(tensors))
        return None if own is None else length_for(own, self.lengths)

    def _padded(self, tensor: Tensor, number: int, length: int) -> Tensor:
        shape = self._padded_shape(tensor.shape, number, length)
        if shape == tensor.shape:
            return tensor
        found = tensor.new_full(shape, self._fills[number])
        found[tuple(slice(size) for size in tensor.shape)] = tensor
        return found

    def _padded_shape(self, shape: torch.Size, number: int, length: int) -> torch.Size:
        places = self._places.get(number, ())
        return torch.Size(length if place in places else size for place, size in enumerate(shape))

    def _own_length(self, shapes: Shapes) -> int | None:
        """The one length of the dimensions that are padded, where all else is as usual."""
        lengths: set[int] = set()
        for number, (shape, usual) in enumerate(zip(shapes, self._usual, strict=True)):
            places = self._places.get(number, ())
            if len(shape) != len(usual):
                return None
            lengths |= {shape[place] for place in places}
            if any(one != other for at, (one, other) in enumerate(zip(shape, usual, strict=True)) if at not in places):
                return None
        return lengths.pop() if len(lengths) == 1 else None

    def _settle(self) -> str | None:
        """Choose places, fills and lengths; why that cannot be done, where it cannot."""
        batches = Counter(tuple(shape[:1] for shape in shapes) for shapes in self._shapes).most_common(1)[0][0]
        whole = [shapes for shapes in self._shapes if tuple(shape[:1] for shape in shapes) == batches]
        alike = [shapes for shapes in whole if [*map(len, shapes)] == [*map(len, whole[0])]]
        self._usual = alike[0]
        self._places = dict(_varying(alike))
        if not self._places:
            return "all batches have one shape"
        own = [length for shapes in alike if (length := self._own_length(shapes)) is not None]
        if len(own) < len(alike):
            return "batches vary in more than one length"
        kept = [window for window in self._kept if _shapes_of(read_window(window)[0]) in alike]
        named = [list(named_tensors(window)) for window in kept]
        if any(len(one) != len(self._usual) for one in named):
            return "batches hold tensors within what is no plain container"
        why_not = self._find_fills(named)
        if why_not is None:
            self.lengths = chosen_lengths(Counter(own), MOST_GRAPHS)
        return why_not

    def _find_fills(self, batches: list[list[tuple[tuple[Any, ...], Tensor]]]) -> str | None:
        """What the padding of the user's own batches holds, tensor by tensor."""
        masks = [number for number, places in self._places.items() if places == (1,)]
        masks = [number for number in masks if all(_is_mask(batch[number][1]) for batch in batches)]
        if not masks:
            return "no mask of ones, and of zeros behind them, says which positions are padding"
        is_padding = [_padding_of(batch[masks[0]][1]) for batch in batches]
        for number, places in self._places.items():
            name = str(batches[0][number][0][-1])
            tensors = [batch[number][1] for batch in batches]
            if number in masks:
                self._fills[number] = tensors[0].dtype == torch.bool and not bool(tensors[0].flatten()[0])
                continue
            held = [t[pads].flatten() for t, pads in zip(tensors, is_padding, strict=True) if places == (1,)]
            self._fills[number] = _one_value(held, _usual_fill(name, tensors[0]))
        return None


def _shapes_of(tensors: Sequence[Tensor]) -> Shapes:
    return tuple(tensor.shape for tensor in tensors)


def _varying(batches: list[Shapes]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The tensors of which dimensions behind the first differ from batch to batch, and these dimensions."""
    for number, shapes in enumerate(zip(*batches, strict=True)):
        places = tuple(place for place in range(1, len(shapes[0])) if len({shape[place] for shape in shapes}) > 1)
        if places:
            yield number, places


def _is_mask(tensor: Tensor) -> bool:
    """Whether rows are ones with zeros behind them; or, of truth values, False with True behind: torch has both."""
    if tensor.dim() != 2 or tensor.is_complex() or not tensor.numel():
        return False
    if tensor.dtype != torch.bool and not bool(((tensor == 0) | (tensor == 1)).all()):
        return False
    begins = tensor[:, 0].bool()
    if tensor.dtype == torch.bool and not bool(begins.any()):
        tensor, begins = ~tensor, ~begins
    numbers = tensor.to(torch.int8)
    return bool(begins.all()) and bool((numbers[:, 1:] <= numbers[:, :-1]).all())


def _padding_of(mask: Tensor) -> Tensor:
    """Where there is padding: where a mask is not what it begins with."""
    return mask != mask[:, :1]


def _one_value(held: Sequence[Tensor], usual: Any) -> Any:
    """The value that all padding holds; ``usual`` where there is none, or no one value."""
    values = [one for one in held if len(one)]
    is_one = bool(values) and all(bool((one == values[0][0]).all()) for one in values)
    return values[0][0].item() if is_one else usual


def _usual_fill(name: str, tensor: Tensor) -> int:
    is_label = "label" in name.lower() and not tensor.is_floating_point() and tensor.dtype != torch.bool
    return IGNORED if is_label else 0
