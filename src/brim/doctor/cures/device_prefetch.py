"""The next batch is copied to the device while the current one is computed.

The loader hands out the same CPU tensors in the same order. What the script was seen to copy of earlier batches is
copied ahead of time on a side stream, and the script's own call finds the copy there. A script that writes into a batch
before it copies it gets a copy of what it wrote.
"""

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import dataloader as torch_loaders
from torch.utils.weak import WeakTensorKeyDictionary

from brim.data.randomness.generators import host_marks
from brim.doctor.cures.batch_moves import Asked, BatchMoves, ColumnPlace

COMPARED = 8  # copies, before they are trusted: writing through numpy leaves no mark on a tensor
NOT_BEGUN = (None, None, None)
GUARDED = 8  # batches that are taken ahead, before it is believed that taking them draws no random numbers


class Copies(Protocol):
    """Begins and finishes copies, as `SideStream` does."""

    def begin(self, tensor: Tensor, device: torch.device) -> Any: ...

    def finish(self, begun: Any, host_waits: bool) -> Tensor: ...


class CopiesAhead:
    """Begins copies as soon as a loader has a batch, and answers the script's own calls by them."""

    def __init__(self, moves: BatchMoves, copies: Copies) -> None:
        self._moves, self._copies = moves, copies
        self._begun: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # device, version of the contents, copy
        self._written: set[ColumnPlace] = set()  # what the script writes to before copying it: not to be copied ahead
        self._compared = 0

    def install(self) -> None:
        # Before other answers: what is there already need not be copied in any way.
        self._moves.answers.insert(0, self.answer)
        self._moves.listeners.append(self.begin)

    def begin(self, tensor: Tensor, place: ColumnPlace) -> None:
        """A loader has made a tensor: copy it where tensors in its place went before."""
        device = self._moves.devices(place.feed).get(place.number)
        if device is not None and place not in self._written:
            self._begun[tensor] = (device, tensor._version, self._copies.begin(tensor, device))

    def answer(self, asked: Asked) -> Tensor | None:
        # Whoever asks twice gets two tensors, as from plain copies.
        device, version, begun = self._begun.pop(asked.tensor, NOT_BEGUN)  # type: ignore[no-untyped-call]
        if device != asked.device:
            return None
        if asked.tensor._version != version:
            self._written.add(asked.place)
            return None
        copy = self._copies.finish(begun, asked.waits)
        if self._compared < COMPARED:
            self._compared += 1
            plain = asked.call(asked.tensor)
            if not is_same(asked.call(copy), plain):
                self._written.add(asked.place)
                return plain
        return asked.call(copy)  # which does what else was asked for: another type, or a copy in any case


def take_batches_ahead() -> None:
    """Loaders with workers are asked for each batch one batch earlier, so that it can be copied in the meantime.

    In a loader without workers a batch is made by the main process when it is asked for, with the random numbers that
    are due then; it is left as it is.
    """
    iterator = torch_loaders._BaseDataLoaderIter
    get_next, reset = iterator.__next__, iterator._reset
    guarded = 0

    def next_ahead(self: Any) -> Any:
        nonlocal guarded
        if not self._num_workers:
            return get_next(self)
        ahead = self.__dict__.pop("_brim_ahead", None)
        batch = get_next(self) if ahead is None else ahead.result()
        before = host_marks() if guarded < GUARDED else None
        self._brim_ahead = _taken(self, get_next)
        if before is not None:
            guarded += 1
            if host_marks() != before:
                raise RuntimeError("the loader draws random numbers in the main process: they would be drawn too early")
        return batch

    def begin_epoch(self: Any, loader: Any, first_iter: bool = False) -> None:
        self.__dict__.pop("_brim_ahead", None)  # of an epoch that was broken off
        reset(self, loader, first_iter)

    iterator.__next__ = next_ahead  # type: ignore[method-assign]
    iterator._reset = begin_epoch  # type: ignore[method-assign]


class _Taken:
    """A batch that was taken ahead, or what happened instead; it is told when its turn comes."""

    def __init__(self, batch: Any, error: Exception | None) -> None:
        self._batch, self._error = batch, error

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._batch


def _taken(loading: Any, get_next: Any) -> _Taken:
    try:
        return _Taken(get_next(loading), None)
    except Exception as error:  # the end of the epoch, or what the data set says of a sample
        return _Taken(None, error)


def is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors on one device hold the same, NaNs included.

    >>> is_same(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]))
    True
    """
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())
