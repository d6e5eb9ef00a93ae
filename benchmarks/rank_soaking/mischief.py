"""Memory that runs out in one process, by the word of a recipe: in the model, or as an exchange is entered."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from brim.engine.fsdp.sharded_evaluation import ShardedLoss
from rank_soaking.recipe import Fault

MESSAGE = "CUDA out of memory. Tried to allocate 2.00 GiB"
LEAST_WORD = 5  # numbers, at least, in what ranks tell each other about a step; an evaluation's sums are three
Strike = Callable[[str, int], None]


@dataclass
class _Left:
    """What is left of a fault."""

    fault: Fault
    skip: int
    times: int


class Mischief:
    """What is still to go wrong on this rank. It lives outside of the model, which brim may build again."""

    def __init__(self, faults: Sequence[Fault], rank: int, log: Path) -> None:
        self.step = 0
        self.evaluations = 0
        self.evaluates = False
        self.seen = 0  # samples that the model says it was trained on
        self._left = [_Left(fault, fault.skip, fault.times) for fault in faults if fault.rank == rank]
        self._log = log

    def strike(self, stage: str, place: str, samples: int = 10**9) -> None:
        """Run out of memory, if it is time to."""
        now = self.evaluations if stage == "evaluation" else self.step
        for left in self._left:
            fault = left.fault
            is_here = (fault.stage, fault.place) == (stage, place) and now >= fault.at and samples > fault.most
            if not is_here or not left.times:
                continue
            if left.skip:
                left.skip -= 1
                continue
            left.times -= 1
            with self._log.open("a") as log:  # opened to append, so ranks can share it
                log.write(json.dumps({"at": now, **asdict(fault)}) + "\n")
            raise torch.OutOfMemoryError(MESSAGE)

    def weak_layer(self) -> "Weak":
        """For the middle of a model. Copies of it share these two functions, which are no part of it."""

        def strike(stage: str, samples: int) -> None:
            self.strike(stage, "model", samples)

        def note(seen: int) -> None:
            self.seen = seen

        return Weak(strike, note)

    def strike_exchanges(self) -> None:
        """Let this process run out as it enters an exchange, which the others have entered or will."""
        dist.all_reduce = self._before(dist.all_reduce, self._enter_sum)
        reduce_scatter = "reduce_scatter_single" if hasattr(dist, "reduce_scatter_single") else "reduce_scatter_tensor"
        gather = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
        enter = {reduce_scatter: lambda *_: self.strike("reduce", "gradients"), gather: lambda *_: self._enter_gather()}
        for name, strike in enter.items():
            setattr(dist, name, self._before(getattr(dist, name), strike))
        evaluate = ShardedLoss.evaluate

        def evaluate_knowingly(loss: ShardedLoss, model: nn.Module) -> dict[str, float]:
            self.evaluates = True
            try:
                return evaluate(loss, model)
            finally:
                self.evaluates = False

        setattr(ShardedLoss, evaluate.__name__, evaluate_knowingly)

    def _before(self, exchange: Callable[..., Any], strike: Callable[..., None]) -> Callable[..., Any]:
        def enter(*arguments: Any, **settings: Any) -> Any:
            strike(*arguments)
            return exchange(*arguments, **settings)

        return enter

    def _enter_sum(self, numbers: Tensor, *_: Any) -> None:
        """What it is about shows in what is added up; other sums are left alone."""
        if numbers.dtype == torch.float64 and numbers.numel() >= LEAST_WORD:
            self.strike("reduce", "word")
        elif numbers.dtype == torch.float32 and numbers.dim():
            self.strike("reduce", "gradients")

    def _enter_gather(self) -> None:
        in_backward = torch._C._current_graph_task_id() != -1
        self.strike("evaluation" if self.evaluates else "backward" if in_backward else "forward", "gather")


class Weak(nn.Module):
    """A layer that passes numbers on, where memory may run out.

    It counts the samples that it is trained on in a buffer: what a failed try has counted must be taken back.
    """

    seen: Tensor

    def __init__(self, strike: Strike, note: Callable[[int], None]) -> None:
        super().__init__()
        self.strike = strike
        self.note = note
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += len(x)
            self.note(int(self.seen))
        self.strike("forward" if self.training else "evaluation", len(x))
        passed: Tensor = _Pass.apply(x, self.strike)  # type: ignore[no-untyped-call]
        return passed


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, strike: Strike) -> Tensor:
        context.strike = strike
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        context.strike("backward", len(gradient))
        return gradient, None
