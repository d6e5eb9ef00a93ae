"""Gradients that are sent to the other ranks while the backward pass still runs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from brim.engine.distributed.buckets import Bucket, in_buckets

OWN = "brim"  # the name of the hook


class Overlap:
    """Buckets of gradients, in an order that is the same on every rank: from the last parameters to the first.

    Every rank sends all of them in every step, whatever happens to it: one that runs out of memory fills the rest with
    nothing, and then says so. So no rank ever waits for a bucket that does not come.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.buckets = [Bucket(group) for group in in_buckets(self.parameters)]
        self._bucket_of = {id(p): number for number, bucket in enumerate(self.buckets) for p in bucket.parameters}
        self._next = 0
        self._works: list[Any] = []
        self.weight = 0.0  # samples that gradients are means over on this rank: they are sent as sums
        self.is_out_of_order = False  # a gradient came after its bucket had been sent

    def is_for(self, parameters: Sequence[nn.Parameter]) -> bool:
        return len(parameters) == len(self.parameters) and all(
            one is other for one, other in zip(parameters, self.parameters, strict=True)
        )

    def begin(self) -> None:
        """A step: nothing has been sent."""
        for bucket in self.buckets:
            bucket.missing = {id(parameter) for parameter in bucket.parameters}
        self._next, self._works, self.weight, self.is_out_of_order = 0, [], 0.0, False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Around the last backward pass of the step: gradients are sent as they come."""
        for parameter in self.parameters:
            _hooks_of(parameter)[OWN] = self.arrived
        try:
            yield
        finally:
            for parameter in self.parameters:
                _hooks_of(parameter).pop(OWN, None)

    def arrived(self, parameter: Tensor) -> None:
        """The gradient of a parameter has come; its bucket is sent once all of it is there."""
        number = self._bucket_of[id(parameter)]
        if number < self._next:  # computed again, as some kinds of checkpointing do
            self.is_out_of_order = True
            return
        self.buckets[number].missing.discard(id(parameter))
        while self._next < len(self.buckets) and not self.buckets[self._next].missing:
            self._send()

    def _send(self, empty: bool = False) -> None:
        bucket = self.buckets[self._next]
        bucket.fill(0.0 if empty else self.weight)
        self._works.append(dist.all_reduce(bucket.flat, async_op=True))
        self._next += 1

    def send_rest(self, empty: bool = False) -> None:
        """What has not been sent: parameters that had no gradient, or everything after a failure."""
        while self._next < len(self.buckets):
            self._send(empty)

    def wait(self) -> None:
        for work in self._works:
            work.wait()
        self._works = []

    def hand_out(self, scale: float, wanted: Sequence[bool]) -> None:
        """Everybody's sums, scaled, as the gradients of the parameters that any rank had one for."""
        chosen = {id(parameter) for parameter, is_wanted in zip(self.parameters, wanted, strict=True) if is_wanted}
        for bucket in self.buckets:
            bucket.hand_out(scale, chosen)


def _hooks_of(parameter: nn.Parameter) -> Any:
    """What is called when a gradient has come. torch's own way to add and remove one takes longer than the rest."""
    if parameter._post_accumulate_grad_hooks is None:
        parameter.register_post_accumulate_grad_hook(_nothing).remove()
    return parameter._post_accumulate_grad_hooks


def _nothing(parameter: Tensor) -> None:
    """Makes the place for hooks, which stays."""
