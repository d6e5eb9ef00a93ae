"""The processes that train one model together: which one this is, and the collectives that they make.

No rank may be caught in a collective that another one does not enter. So a rank computes its gradients alone, as often
as it needs to, and only then are they all-reduced; or it sends them as they come (``overlap``), and sends zeros for the
rest where it cannot go on.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from brim.engine.distributed.notice import Notice
from brim.engine.distributed.process_group import ProcessGroup, form_group, has_formed_group
from brim.engine.oom.out_of_memory import is_out_of_memory
from brim.errors import CannotFit, ConfigError, Preempted, RanksLost


class Ranks:
    """This process among those that train together. With one alone every collective is the value itself."""

    def __init__(self, rank: int = 0, world: int = 1, local_rank: int = 0, local_world: int = 1) -> None:
        self.rank = rank
        self.world = world
        self.local_rank = local_rank
        self.local_world = local_world
        self.is_alone = world == 1
        self.is_launched = False  # by torchrun or its like, be it as one of one
        self.device = torch.device("cpu")
        self.group: ProcessGroup | None = None  # None too where the program has formed it

    @classmethod
    def here(cls) -> "Ranks":
        """As a launcher (torchrun) says in the environment; alone where none did."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        if dist.is_available() and dist.is_initialized() and not has_formed_group():  # by the program itself
            local = int(os.environ.get("LOCAL_RANK", "0"))
            return cls(dist.get_rank(), dist.get_world_size(), local, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return cls()
        try:
            rank, world, local_rank, local_world = (int(os.environ.get(name, default)) for name, default in
                                                    zip(names, ("0", "1", "0", "1"), strict=True))  # fmt: skip
        except ValueError as error:
            raise ConfigError(f"the launcher's variables {', '.join(names)} must be whole numbers: {error}") from error
        if not 0 <= rank < world:
            raise ConfigError(f"RANK={rank} is not one of WORLD_SIZE={world} ranks; start them with torchrun")
        if not 0 <= local_rank < local_world:
            raise ConfigError(
                f"LOCAL_RANK={local_rank} is not one of LOCAL_WORLD_SIZE={local_world}; start the ranks with torchrun"
            )
        found = cls(rank, world, local_rank, local_world)
        found.is_launched = True
        return found

    @property
    def is_first(self) -> bool:
        """The rank that speaks and writes."""
        return self.rank == 0

    def join(self, device: torch.device) -> None:
        """Meet the others for the first time, unless the program has done so itself."""
        if self.is_alone:
            return
        self.device = device
        if device.type == "cuda":
            torch.cuda.set_device(device)  # barriers and exchanges of objects use the current one
        # Each on a GPU of its own, unless one was asked for by name: NCCL does not share one.
        own_gpu = device.type == "cuda" and device.index == self.local_rank < torch.cuda.device_count()
        own_gpu = own_gpu and self.local_world <= torch.cuda.device_count()
        self.group = form_group(self.rank, self.world, device, own_gpu)

    def broadcast_model(self, model: nn.Module) -> None:
        """Everybody takes the first rank's weights and buffers."""
        if not self.is_alone:
            for tensor in [*model.parameters(), *model.buffers()]:
                own = _without_repeats(tensor.detach())
                sent = torch.empty(own.numel(), dtype=own.dtype, device=self.device).copy_(own.reshape(-1))
                with self.collective("sending the first rank's weights"):
                    dist.broadcast(sent.view(torch.uint8), 0)  # as bytes, since not every type can be sent
                own.copy_(sent.view(own.shape))

    def broadcast_norm_statistics(self, model: nn.Module) -> None:
        """Everybody takes the first rank's statistics of norms: they are those of its samples."""
        if not self.is_alone:
            for buffer in moving_buffers(model):
                with self.collective("sending the first rank's statistics"):
                    dist.broadcast(buffer, 0)

    def broadcast_object(self, value: Any) -> Any:
        """The first rank's value, on every rank."""
        if self.is_alone:
            return value
        held = [value]
        with self.collective("waiting for the first rank's word"):
            dist.broadcast_object_list(held, 0)
        return held[0]

    def all_gather_object(self, value: Any) -> list[Any]:
        """The values of all ranks, on every rank."""
        if self.is_alone:
            return [value]
        held: list[Any] = [None] * self.world
        with self.collective("telling each other how they stand"):
            dist.all_gather_object(held, value)
        return held

    def all_reduce(self, numbers: Tensor) -> Tensor:
        """The sum over all ranks."""
        if not self.is_alone:
            with self.collective("adding up"):
                dist.all_reduce(numbers)
        return numbers

    def all_reduce_votes(self, votes: Sequence[bool], timeout: float) -> list[int]:
        """How many ranks vote yes on each question. The hosts exchange them: no GPU is waited for."""
        counts = torch.tensor(votes, dtype=torch.int32)
        if self.world > 1:
            assert self.group is not None
            with self.collective("agreeing how to make the step", timeout):
                dist.all_reduce(counts, group=self.group.host_group(timeout))
        return [int(number) for number in counts]

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
    def collective(self, what: str, timeout: float | None = None) -> Iterator[None]:
        """Something that all do together; a rank that does not come is named instead of torch's words for it.

        ``patience``: seconds that it may take; if not said all wait long, with good reason.
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
        """The error of a rank that waited for others in vain."""
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
            said = (str(error).splitlines() or [""])[0]
            self.group.post_failure(Notice(self.rank, f"{type(error).__name__}: {said}"[:400]))

    def barrier(self) -> None:
        """When a run is over: wait for the others, so that none is left waiting."""
        if not self.is_alone:
            with self.collective("the end of the run"):
                dist.barrier()


def on_all_ranks(error: CannotFit) -> CannotFit:
    """Mark an error that all ranks end with: then they can still write a checkpoint together."""
    error.is_on_all_ranks = True  # type: ignore[attr-defined]
    return error


def moving_buffers(model: nn.Module) -> list[Tensor]:
    """Statistics of norms, which steps move. Other buffers may differ in number (caches) or hold infinities (masks)."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._NormBase)]
    return [buffer for norm in norms for buffer in norm._buffers.values() if buffer is not None]


def _without_repeats(tensor: Tensor) -> Tensor:
    """Each number of an expanded tensor once, in the same memory."""
    sizes = [1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return tensor.as_strided(sizes, tensor.stride(), tensor.storage_offset())
