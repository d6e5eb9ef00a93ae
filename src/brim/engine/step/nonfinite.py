"""What happens when a loss or a gradient is not a number: the batch is named and kept, and the run stops or goes on."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from brim.data import Batch
from brim.data.batches.batch import is_container, map_children
from brim.engine.components.settings import REWIND, SKIP, STOP
from brim.engine.distributed.model_broadcast import norm_statistics
from brim.engine.state.sharded_tensors import local_part
from brim.errors import BadNumbers, some_of

MOST_IN_A_ROW = 10
MOST_KEPT = 5  # batches, in one run folder
FOLDER = "bad-batches"
ADVICE = "lower lr, set clip_norm=1.0, or look for bad values in these samples"
HOLDS_BAD = "holds NaN or infinity"  # what is said of a batch by its tensor that does


@dataclass(frozen=True)
class BadStep:
    """A step whose loss was not finite, or whose gradient was not (then the loss is given as NaN)."""

    step: int
    epoch: int
    first: int  # of its samples, in the order of the epoch
    samples: int
    loss: float

    def __str__(self) -> str:
        return f"the loss is {self.loss} at {self.where}"

    @property
    def where(self) -> str:
        last = self.first + self.samples - 1
        return f"step {self.step:,} (epoch {self.epoch + 1}, samples {self.first:,} to {last:,} of its order)"


def refuse(bad: BadStep) -> None:
    """The plainest thing to do about it."""
    raise BadNumbers(f"{bad}; {ADVICE}")


class Rewind(Exception):
    """Asks the loop to go on from the last checkpoint."""


class NonfinitePolicy:
    """What a run does about bad numbers. ``batches_of`` hands over the batches of a step once more."""

    def __init__(
        self,
        on_nan: str,
        run: Path,
        warn: Callable[[str], None],
        batches_of: Callable[[BadStep], Sequence[Batch]] = lambda bad: (),
    ) -> None:
        self.on_nan = on_nan
        self.folder = run / FOLDER
        self.warn = warn
        self.batches_of = batches_of
        self.skip_nonfinite = on_nan == SKIP  # whether the step checks its numbers, and leaves bad updates out
        self._last = -1
        self._in_a_row = 0
        self._kept = 0

    def on_nonfinite(self, bad: BadStep) -> None:
        """Go on without the step, or raise: BadNumbers to stop, Rewind to go on from the last checkpoint."""
        self._in_a_row = self._in_a_row + 1 if bad.step == self._last + 1 else 1
        self._last = bad.step
        kept, told = self._keep(bad), str(bad)
        if self.skip_nonfinite and math.isnan(bad.loss):  # the step has looked at gradients as well
            told = f"the loss or a gradient is not finite at {bad.where}"
        if self.on_nan == REWIND and not self.skip_nonfinite:
            self.skip_nonfinite = True
            self.warn(f"{bad}{kept}; going back to the last checkpoint, and leaving such steps out from there on")
            raise Rewind
        advice = "clean the data, or set on_nan='skip'" if HOLDS_BAD in kept else ADVICE
        if self.on_nan == STOP:
            raise BadNumbers(f"{bad}{kept}; {advice}")
        if self._in_a_row >= MOST_IN_A_ROW:
            raise BadNumbers(f"{told}{kept}, the {self._in_a_row}th step in a row that was left out; {ADVICE}")
        self.warn(f"{told}{kept}: its update is left out")

    def check_weights(
        self, model: nn.Module, step: int, any_rank: Callable[[bool], bool] = lambda are_bad: are_bad
    ) -> None:
        """Before a checkpoint: bad weights are not worth one, and would take the place of a good one.

        ``any_rank`` says whether a rank has found any: each may have a part of the weights.
        """
        trained = [local_part(parameter.detach()) for parameter in model.parameters() if parameter.requires_grad]
        if not any_rank(not are_finite([*trained, *[buffer.detach() for buffer in norm_statistics(model)]])):
            return
        sentence = f"weights are not finite after step {step:,}, though the losses were"
        if self.on_nan == REWIND and not self.skip_nonfinite:
            self.skip_nonfinite = True
            self.warn(f"{sentence}; going back to the last checkpoint, and leaving such steps out from there on")
            raise Rewind
        raise BadNumbers(f"{sentence}: a gradient must have overflowed; lower lr or set clip_norm=1.0")

    def _keep(self, bad: BadStep) -> str:
        """Write the batch into the run folder, and say where it is."""
        if self._kept >= MOST_KEPT:
            return ""
        try:
            batches = self.batches_of(bad)
            if not batches:
                return ""
            path = self.folder / f"step-{bad.step:09d}.safetensors"
            facts = {"step": bad.step, "epoch": bad.epoch + 1, "first sample": bad.first}
            written = write_batch(list(batches), path, facts)
            odd = [place for place, tensor in written.items() if not are_finite([tensor])]
        except Exception as error:  # whatever the user's data does when it is read again: the step matters more
            return f"; its batch could not be kept ({type(error).__name__}: {error})"
        self._kept += 1
        return f"; its batch is in {FOLDER}/{path.name}" + (
            f", whose tensor {some_of(odd, 3)} {HOLDS_BAD}" if odd else ""
        )


def write_batch(batch: Any, path: Path, facts: dict[str, Any]) -> dict[str, Tensor]:
    """Every tensor of a batch under its place in it (``0.user``), which are returned as well; what is no tensor goes to
    the metadata as text.
    """
    tensors: dict[str, Tensor] = {}
    others: dict[str, str] = {}

    def collect(part: Any, place: str) -> Any:
        if isinstance(part, Tensor):
            tensors[place] = part.detach().cpu().clone().contiguous()  # batches are views of larger blocks
        elif isinstance(part, dict):
            for key, value in part.items():
                collect(value, f"{place}.{key}".lstrip("."))
        elif is_container(part):
            numbers = iter(range(len(part) if hasattr(part, "__len__") else 1 << 30))
            map_children(lambda child: collect(child, f"{place}.{next(numbers)}".lstrip(".")), part)
        else:
            others[place] = repr(part)[:1000]
        return part

    collect(batch, "")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(path), {"about": json.dumps(facts), **others})
    return tensors


def are_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether all of these are free of NaN and infinity. Waits for the device."""
    dense = [tensor.coalesce().values() if tensor.is_sparse else tensor for tensor in tensors]
    floats = [tensor for tensor in dense if tensor.is_floating_point() and tensor.numel()]
    if not floats:
        return True
    most = [largest.float() for largest in torch._foreach_norm(floats, math.inf)]
    return bool(torch.stack([largest.to(most[0].device) for largest in most]).isfinite().all())


def step_if_finite(loss: Tensor, optimizer: Optimizer) -> Tensor:
    """Step, unless the loss or a gradient is not finite: then nothing moves, and the loss comes back as NaN.

    Fused optimizers are told on the device and decide there; for others the host has to wait and see.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not can_decide_on_device(optimizer, gradients):
        if not (math.isfinite(loss.item()) and are_finite(gradients)):
            return torch.full_like(loss, math.nan)
        optimizer.step()
        return loss
    found = (~loss.isfinite()).float().reshape(())  # without a dimension, as the counts of steps that it is taken from
    one = torch.ones_like(found)
    for dtype in {gradient.dtype for gradient in gradients}:
        alike = [gradient for gradient in gradients if gradient.dtype == dtype]
        torch._amp_foreach_non_finite_check_and_unscale_(alike, found, one)
    optimizer.found_inf, optimizer.grad_scale = found, None  # type: ignore[attr-defined]
    try:
        optimizer.step()
    finally:
        del optimizer.found_inf, optimizer.grad_scale  # type: ignore[attr-defined]
    return loss.masked_fill(found > 0, math.nan)


def can_decide_on_device(optimizer: Optimizer, gradients: Sequence[Tensor]) -> bool:
    """Whether the optimizer can be told on the device to leave a step out, as the loss scaler of fp16 does."""
    supports = getattr(optimizer, "_step_supports_amp_scaling", False)
    fused = all(group.get("fused") for group in optimizer.param_groups)
    return bool(supports and fused and gradients and all(g.is_cuda and not g.is_sparse for g in gradients))
