"""The gathers of one step, the collectives in the middle of their losses.

No rank may wait in a collective that another one does not enter. So before each of them the hosts vote: whoever is
about to gather says so, whoever has run out of memory says that, wherever it did. Where one has, all break off and make
the step again, with equally many micro-batches. Votes are small and of the hosts; no GPU is waited for.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

from torch import Tensor

from brim.data.randomness.order import rank_bounds
from brim.engine.distributed.ranks import Ranks, on_all_ranks
from brim.engine.gathering.joined_rows import joined_rows
from brim.engine.oom.out_of_memory import Shortage, is_out_of_memory
from brim.errors import BrimError, CannotFit, ConfigError

FORWARD, BACKWARD, SHAPES, DONE, RAN_OUT = range(1, 6)  # what a rank is about to do
UNEVEN_CALLS = (
    "the ranks do not call brim.gather alike: each must call it equally often, in the same order, with tensors of one "
    "type whose rows have one shape, and use what it returns"
)


class PeerRanOut(MemoryError):
    """Another rank has no memory for its part of the step: this one breaks off as well."""


class ExchangeRanOut(BrimError):
    """Memory ran out within a collective, where the others wait: the group has to be formed again."""


class GatherSession:
    """One step of all ranks. ``lengths``: how many samples this rank has of each batch of the step.

    A rank's loss counts by its samples: gradients that come back from others are weighed by theirs, so that after the
    exchange of gradients, which weighs by them again, all is as one process would have it.
    """

    def __init__(self, ranks: Ranks, lengths: Sequence[int]) -> None:
        self.ranks = ranks
        self.lengths = ranks.all_gather_numbers(lengths)  # by rank, then by batch
        self.batch = 0  # of the step, which is being computed
        self._calls = 0

    @property
    def longest(self) -> int:
        """The most samples that a rank has of a batch."""
        return max(max(of_rank) for of_rank in self.lengths)

    @property
    def samples(self) -> int:
        """Of this rank, in all batches of the step."""
        return sum(self.lengths[self.ranks.rank])

    def is_short(self, batch: int) -> bool:
        """Whether a rank has no sample of this batch."""
        return any(of_rank[batch] == 0 for of_rank in self.lengths)

    def bounds(self, batch: int, size: int | None) -> list[tuple[int, int]]:
        """This rank's micro-batches of at most ``size`` samples: as many as the others have, but for empty ones."""
        own, longest = self.lengths[self.ranks.rank][batch], max(of_rank[batch] for of_rank in self.lengths)
        number = 1 if size is None else -(-longest // size)
        bounds = [rank_bounds(0, own, place, number) for place in range(number)]
        return [(start, stop) for start, stop in bounds if stop > start]

    def begin(self) -> None:
        """Another try of the step."""
        self.batch = self._calls = 0

    def gather(self, tensor: Tensor) -> Tensor:
        """The rows of all ranks."""
        self._calls += 1
        flags = int(tensor.requires_grad)
        shape = crc32(repr((tuple(tensor.shape[1:]), str(tensor.dtype))).encode())
        said = self.vote(FORWARD, self._calls, shape, flags, len(tensor))
        exchange = _SessionGather(self, [message[-1] for message in said], self._calls, self.batch)
        return joined_rows(tensor, exchange)

    def vote(self, status: int, *facts: int) -> list[list[int]]:
        """What all ranks are about to do. Raises on all of them where one has run out, or they differ in ``facts``.

        The last fact, the number of rows, may differ.
        """
        said = self.ranks.all_gather_numbers([status, *facts, *[0] * (4 - len(facts))])
        if any(message[0] == RAN_OUT for message in said):
            raise PeerRanOut("another rank has no memory for its part of the batch")
        if len({tuple(message[:-1]) for message in said}) > 1:
            raise ConfigError(UNEVEN_CALLS)
        return said

    def finish(self) -> None:
        """This rank has its gradients; returns when all have theirs."""
        self.vote(DONE)

    def report_oom(self) -> None:
        """This rank cannot go on: tell the others where they vote next."""
        self.ranks.all_gather_numbers([RAN_OUT, 0, 0, 0, 0])

    def all_gather_shortage(self, own: Shortage | None, failure: str | None) -> Shortage:
        """After all broke off: the shortage of the first rank that ran out.

        ``failure``: why this rank cannot try again.
        """
        said = self.ranks.all_gather_object((own, failure))
        for rank, (_, why) in enumerate(said):
            if why is not None:
                raise on_all_ranks(CannotFit(f"rank {rank}: {why}"))
        shortage: Shortage
        rank, shortage = next((rank, one) for rank, (one, _) in enumerate(said) if one is not None)
        return replace(shortage, where=f"{shortage.where} on rank {rank}".strip())

    def any_rank(self, flag: bool) -> bool:
        """Whether the flag is set on any rank; the hosts exchange it."""
        return any(said[0] for said in self.ranks.all_gather_numbers([int(flag)]))

    def all_reduce_min(self, number: int | None) -> int | None:
        """The smallest number of all ranks; None where one of them has none."""
        said = [message[0] for message in self.ranks.all_gather_numbers([-1 if number is None else number])]
        return None if min(said) < 0 else min(said)

    def all_gather_shapes(self, own: Any) -> Any:
        """What a rank with samples says of its outputs, for those that have none."""
        self.vote(SHAPES)
        return next(said for said in self.ranks.all_gather_object(own) if said is not None)


class _SessionGather:
    """One gather of a session."""

    def __init__(self, session: GatherSession, rows: Sequence[int], call: int, batch: int) -> None:
        self.session = session
        self.rows = rows
        self.rank = session.ranks.rank
        self._call = call
        self._counts = session.lengths[self.rank][batch] > 0
        self._weight = session.samples

    def before_forward(self) -> None:
        """Memory is there for what comes."""
        self.session.vote(FORWARD, self._call, 1)

    def before_backward(self) -> None:
        self.session.vote(BACKWARD, self._call)

    def scaled_by_samples(self, gradient: Tensor) -> Tensor:
        if not self._counts:
            return gradient.zero_()  # not by multiplying: a mean over nothing is not a number
        return gradient.mul_(self._weight)

    def unscaled(self, gradient: Tensor) -> Tensor:
        return gradient / self._weight if self._weight else gradient

    def run(self, collective: Callable[[], Any]) -> None:
        try:
            with self.session.ranks.collective("brim.gather"):
                collective()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise ExchangeRanOut("memory ran out within brim.gather") from error
