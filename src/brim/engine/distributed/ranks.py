"""The collectives of the processes that train one model together.

No rank may be caught in a collective that another one does not enter. So a rank computes its gradients alone, as often
as it needs to, and only then are they all-reduced; or it sends them as they come (``overlap``), and sends zeros for the
rest where it cannot go on.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from brim.engine.distributed.notice import Notice
from brim.engine.distributed.process_group import TIMEOUT, ProcessGroup, form_group
from brim.engine.distributed.rank_identity import RankIdentity
from brim.engine.oom.out_of_memory import is_out_of_memory
from brim.errors import CannotFit, Preempted, RanksLost, said


class Ranks:
    """This process among those that train together. With one alone every collective is the value itself."""

    def __init__(
        self, rank: int = 0, world: int = 1, local_rank: int = 0, local_world: int = 1, is_launched: bool = False
    ) -> None:
        self.identity = RankIdentity(rank, world, local_rank, local_world, is_launched)
        self.is_alone = world == 1
        self.device = torch.device("cpu")
        self.group: ProcessGroup | None = None  # None too where the program has formed it
        self._hosts: Any = None  # in that case

    @classmethod
    def from_environment(cls) -> "Ranks":
        """Those that a launcher (torchrun) has started with this one; alone where none did."""
        return cls(*astuple(RankIdentity.from_environment()))

    @property
    def rank(self) -> int:
        return self.identity.rank

    @property
    def world(self) -> int:
        return self.identity.world

    @property
    def is_first(self) -> bool:
        """The rank that speaks and writes."""
        return self.identity.is_first

    def join(self, device: torch.device) -> None:
        """Meet the others for the first time, unless the program has done so itself."""
        if self.is_alone:
            return
        self.device = device
        if device.type == "cuda":
            torch.cuda.set_device(device)  # barriers and exchanges of objects use the current one
        # Each on a GPU of its own, unless one was asked for by name: NCCL does not share one.
        own_gpu = device.type == "cuda" and device.index == self.identity.local_rank < torch.cuda.device_count()
        own_gpu = own_gpu and self.identity.local_world <= torch.cuda.device_count()
        self.group = form_group(self.rank, self.world, device, own_gpu)

    def broadcast_object(self, value: Any) -> Any:
        """The first rank's value, on every rank."""
        if self.is_alone:
            return value
        held = [value]
        with self.collective("a broadcast from the first rank"):
            dist.broadcast_object_list(held, 0)
        return held[0]

    def all_gather_object(self, value: Any) -> list[Any]:
        """The values of all ranks, on every rank."""
        if self.is_alone:
            return [value]
        held: list[Any] = [None] * self.world
        with self.collective("an all-gather of objects"):
            dist.all_gather_object(held, value)
        return held

    def all_reduce(self, numbers: Tensor) -> Tensor:
        """The sum over all ranks."""
        if not self.is_alone:
            with self.collective("an all-reduce"):
                dist.all_reduce(numbers)
        return numbers

    def all_reduce_votes(self, votes: Sequence[bool], timeout: float) -> list[int]:
        """How many ranks vote yes on each question. The hosts exchange them: no GPU is waited for."""
        counts = torch.tensor(votes, dtype=torch.int32)
        if self.world > 1:
            assert self.group is not None
            with self.collective("a vote on the step", timeout):
                dist.all_reduce(counts, group=self.group.host_group(timeout))
        return [int(number) for number in counts]

    def all_gather_numbers(self, numbers: Sequence[int]) -> list[list[int]]:
        """As many whole numbers of every rank, on every rank. The hosts exchange them: no GPU is waited for."""
        if self.is_alone:
            return [list(numbers)]
        table = torch.zeros(self.world, len(numbers), dtype=torch.int64)
        table[self.rank] = torch.tensor(numbers)
        with self.collective("an all-gather of numbers"):
            dist.all_reduce(table, group=self._host_group())
        found: list[list[int]] = table.tolist()
        return found

    def _host_group(self) -> Any:
        """A group in which hosts exchange numbers; all ranks ask for it at the same time."""
        if self.group is not None:
            return self.group.host_group(TIMEOUT.total_seconds())
        if self._hosts is None:  # the program has formed the group
            self._hosts = dist.group.WORLD if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")
        return self._hosts

    def form_host_group(self, timeout: float) -> bool:
        """Form the group for votes, on all ranks at the same time; False where the hosts do not reach each other."""
        if self.world == 1:
            return True
        assert self.group is not None
        try:
            self.group.host_group(timeout)
            failed = False
        except RuntimeError:  # NCCL has found a way that gloo does not
            failed = True
        return not self.any_rank(failed)

    def any_rank(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        if self.is_alone:
            return flag
        return bool(self.all_reduce(torch.tensor(float(flag), device=self.device)))

    @contextmanager
    def fits_on_all(self, doing: str) -> Iterator[None]:
        """Around what each rank computes by itself: where one has no memory for ``doing`` it, all ranks end."""
        failed: CannotFit | None = None
        try:
            yield
        except CannotFit as error:
            if self.is_alone:
                raise
            failed = error
        if self.any_rank(failed is not None):
            raise on_all_ranks(failed or CannotFit(f"another rank has no memory to {doing}; its own log says more"))

    @contextmanager
    def collective(self, what: str, timeout: float | None = None) -> Iterator[None]:
        """Something that all do together; a rank that does not come is named instead of torch's words for it.

        ``timeout``: seconds that it may take; if not said all wait long, with good reason.
        """
        began = time.perf_counter()
        self.set_timeout(timeout)
        try:
            yield
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise self.lost(error, what, time.perf_counter() - began) from error

    def set_timeout(self, seconds: float | None = None) -> None:
        """How long exchanges may take from now on; long, if not said."""
        if self.group is not None:
            self.group.set_timeout(seconds)

    def lost(self, error: BaseException, what: str, waited: float) -> RanksLost:
        """The error of a rank for which others did not come."""
        if self.group is not None:
            self.group.is_broken = True
            if (failure := self.group.posted_failure()) is not None:
                return failure.error(self.rank, self.world)
        absent = [] if self.group is None else self.group.missing_ranks()
        who = f"rank {', '.join(map(str, absent))}" if absent else "the others"
        why = (str(error).splitlines() or [""])[0][:160]
        return RanksLost(
            f"rank {self.rank} of {self.world} lost {who} in {what}, after waiting {waited:.1f} s ({why}); start again "
            "with resume"
        )

    def post_failure(self, error: BaseException) -> None:
        """This rank ends with an error, of which the others should hear instead of waiting for it."""
        if self.world > 1 and self.group is not None and not isinstance(error, RanksLost | Preempted):
            self.group.post_failure(Notice(self.rank, said(error, most=350)))

    def barrier(self) -> None:
        """When a run is over: wait for the others, so that none is left waiting."""
        if not self.is_alone:
            with self.collective("the end of the run"):
                dist.barrier()


def on_all_ranks(error: CannotFit) -> CannotFit:
    """Mark an error that all ranks end with: then they can still write a checkpoint together."""
    error.is_on_all_ranks = True  # type: ignore[attr-defined]
    return error
