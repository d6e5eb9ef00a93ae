"""What a training step has to do: operators with their operations and bytes, counted on fake tensors.

The run that a memory forecast makes tells it too, so one pass gives both the trace of a step and its work. The formulas
for products, convolutions and attention are torch's own (``torch.utils.flop_counter``); everything else is counted by
the bytes it reads and writes, which is what it takes its time for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from brim.hardware.cards import Card
from brim.memory.kernels.scope import Scope
from brim.memory.parallel import parameter_blocks
from brim.memory.planning.window import batch_tensors
from brim.memory.trace.steps import Job, trace_steps
from brim.memory.trace.trace import Recorder, Trace
from brim.sizes import bytes_of

FULL, TF32, HALF = "full", "tf32", "half"  # what a product is computed in
PHASES = ("forward", "backward", "optimizer")
TENSORS_A_LAUNCH = 32  # about as many tensors as one multi-tensor kernel takes
LAUNCHES_A_CELL = 6  # of cuDNN, for one layer and one step in time, forward and backward together
GATHERING = ("aten.embedding", "aten.index", "aten.index_select", "aten.gather")  # read what they give, not all of it
WITHOUT_KERNEL = ("aten._unsafe_view", "aten._reshape_alias", "aten.lift_fresh", "aten.empty", "aten.new_empty")
FORMULAS = {str(operator): formula for operator, formula in flop_registry.items()}


class Operator(NamedTuple):
    """One call of torch: operations, bytes read and written, kernels launched (0: a view), and the format it takes."""

    flops: float
    bytes: float
    launches: int
    format: str = FULL
    recurrent: bool = False  # cuDNN's cells: small products, each of which waits for the one before


@dataclass(frozen=True)
class Work:
    """One training step on so many samples; ``passes`` forward and backward passes are in it."""

    samples: int
    operators: dict[str, tuple[Operator, ...]]  # by phase
    passes: int
    gradients: tuple[int, ...]  # bytes of each
    parameters: int  # bytes of all
    blocks: int  # the modules that FSDP2 would gather one after the other
    modules: int
    batch: int  # bytes


class WorkCounter(Recorder):
    """A recorder that also counts what the last step does."""

    def __init__(self, card: Card, runtime: tuple[int, int], precision: str) -> None:
        super().__init__(card, runtime)
        self.single = TF32 if precision == "tf32" and card.is_capable_of_bf16 else FULL
        # torch allows TF32 to cuDNN's convolutions unless it is told not to, on cards from Ampere on.
        self.convolution = TF32 if card.is_capable_of_bf16 else FULL
        self.operators: dict[str, list[Operator]] = {phase: [] for phase in PHASES}
        self.passes = 0
        self.parameters: list[tuple[int, bool]] = []  # bytes, and whether it is trained
        self.modules = 0

    def watch_modules(self, model: nn.Module) -> None:
        super().watch_modules(model)
        self.parameters = [(bytes_of(parameter), parameter.requires_grad) for parameter in model.parameters()]
        self.modules = sum(1 for _ in model.modules())

    def enter(self, phase: str) -> None:
        if phase == "batch" and self.phase == "optimizer":  # the first step also makes what later ones find
            self.operators, self.passes = {phase: [] for phase in PHASES}, 0
        self.passes += phase == "forward"
        super().enter(phase)

    def _record(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        super()._record(name, args, kwargs, result)
        if self.phase in self.operators:
            self.operators[self.phase].append(self._operator(name, args, kwargs, result))

    def record_call(self, scope: Scope, name: str, made: Sequence[Any]) -> None:
        super().record_call(scope, name, made)
        if name == "aten._cudnn_rnn_backward.default":  # it knows all sizes; the forward pass is counted with it
            self.operators["backward"].append(self._recurrent(made))

    def _operator(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Operator:
        packet = name.rpartition(".")[0]
        if _is_view(name) or packet.startswith(WITHOUT_KERNEL):
            return Operator(0, 0, 0)
        read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        written = made or read[: len(read) // 2]  # lists that are changed in place are not handed back
        formula = FORMULAS.get(packet)
        flops = 0 if formula is None else formula(*args, **kwargs, out_val=result)
        both = sum(bytes_of(tensor) for tensor in (*written, *(written if packet in GATHERING else read)))
        launches = 1 + len(read) // TENSORS_A_LAUNCH if "_foreach_" in packet or "_fused_" in packet else 1
        return Operator(float(flops), float(both), launches, self._format(packet, read))

    def _format(self, packet: str, read: list[Tensor]) -> str:
        floating = [tensor.dtype for tensor in read if tensor.is_floating_point()]
        if floating and floating[0] in (torch.bfloat16, torch.float16):
            return HALF
        return self.convolution if "convolution" in packet else self.single

    def _recurrent(self, made: Sequence[Any]) -> Operator:
        """cuDNN's layers: every weight meets every row once forward and twice backward; cells run one by one."""
        dx, dhx, _, weights = made
        rows = dx.numel() // max(1, dx.shape[-1])
        layers, sequences = dhx.shape[0], dhx.shape[1] if dhx.dim() > 2 else 1
        cells = layers * -(-rows // max(1, sequences))
        computed_in = HALF if weights.dtype in (torch.bfloat16, torch.float16) else self.convolution
        read = 3 * cells * bytes_of(weights) / max(1, layers)  # each cell reads its layer's weights anew
        return Operator(6.0 * rows * weights.numel(), read, LAUNCHES_A_CELL * cells, computed_in, recurrent=True)


def count_work(
    job: Job, samples: int, card: Card, runtime: tuple[int, int], counter: WorkCounter | None = None
) -> tuple[Trace, Work]:
    """The trace of a step, as `trace_steps` makes it, and what there is to compute in it.

    ``counter``: one that looks at more than that.
    """
    counter = counter or WorkCounter(card, runtime, job.precision)
    trace = trace_steps(job, samples, card, runtime, recorder=counter)
    return trace, Work(
        samples,
        {phase: tuple(operators) for phase, operators in counter.operators.items()},
        max(1, counter.passes),
        tuple(size for size, trained in counter.parameters if trained),
        sum(size for size, _ in counter.parameters),
        max(1, len(parameter_blocks(trace))),
        counter.modules,
        sum(batch_tensors(trace)),
    )


@cache
def _is_view(name: str) -> bool:
    """Whether an operator only looks at its argument in another way."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return bool(getattr(found, "is_view", False))
