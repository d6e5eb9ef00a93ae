"""Whether two ways to compute the same come to the same: gradients, losses, and what an optimizer makes of them.

Gradients are compared before an optimizer has used them: Adam turns the rounding of a tiny gradient into a step of full
size. The optimizer is compared apart, on gradients that both ways are given.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from brim.engine.captured.proof.rounding import Rounding
from brim.engine.captured.report import Refusal

PER_TENSOR = 4  # times as much as over all: what cancels in one tensor does not in all of them
# Of an update: its corrections are computed in single precision on the device, where 1 - beta2 ** step loses digits.
OF_UPDATE = 2.0**-12
OF_VALUE = 8  # epsilons of a number of the optimizer's state
CAPTURED = "a captured step"  # what is held against an eager one, where nothing else is said
Tensors = Mapping[str, Tensor]


@dataclass
class Likeness:
    """How alike eager and captured steps were found to be."""

    rounding: Rounding
    gradients: float = 0.0  # the largest difference, as a share of the norm; 0 where all bits are the same
    updates: float = 0.0
    steps: int = 0  # that were proven with finite gradients
    tried: list[str] = field(default_factory=list)  # what was changed between steps, to see whether the graph follows

    def __str__(self) -> str:
        within = f"within {self.gradients:.0e} of their norm ({self.rounding})"
        gradients = within if self.gradients else "equal to the bit"
        updates = f"within {self.updates:.0e} of their size" if self.updates else "to the bit"
        tried = f", with {' and '.join(self.tried)} changed in between" if self.tried else ""
        return f"gradients {gradients}, updates {updates}{tried}"


def compare_gradients(eager: Tensors, captured: Tensors, rounding: Rounding, what: str = CAPTURED) -> float:
    """The difference over all as a share of the norm; refuses where rounding does not explain it.

    A gradient that cancels out (of a bias before a norm) is nothing but rounding, and differs by all of itself. So each
    is held against the others of its module too, and against all of them, by the size of a single number.
    """
    missing = [name for name in {*eager, *captured} if (name in eager) != (name in captured)]
    if missing:
        where = "eager" if missing[0] in eager else what.split()[1]
        raise Refusal(f"{missing[0]} has a gradient in {where} steps only")
    names = [name for name in eager if not are_same(eager[name], captured[name])]
    if not names:
        return 0.0
    sizes = norms([eager[name] for name in eager], list(eager))
    apart = dict(zip(names, distances([eager[n] for n in names], [captured[n] for n in names]), strict=True))
    total, total_apart = math.hypot(*sizes.values()), math.hypot(*apart.values())
    floors = _floors(eager, sizes)
    for name in names:
        allowed = PER_TENSOR * rounding.share * max(sizes[name], floors[name])
        if not apart[name] <= allowed:
            raise Refusal(
                f"{what} gave other gradients than an eager one ({name}: {apart[name]:.1e} apart, its norm is "
                f"{sizes[name]:.1e}; {rounding} of the norm)"
            )
    if not total_apart <= rounding.share * total:
        raise Refusal(
            f"{what} gave other gradients than an eager one ({total_apart:.1e} apart over all, their norm is "
            f"{total:.1e}; {rounding} of the norm)"
        )
    return total_apart / total


def _floors(tensors: Tensors, sizes: Mapping[str, float], over_all: bool = True) -> dict[str, float]:
    """The norm that a tensor would have if its numbers were as large as those of its neighbours."""
    of_module: dict[str, float] = defaultdict(float)
    for name, tensor in tensors.items():
        module = name.rpartition(".")[0]
        of_module[module] = max(of_module[module], sizes[name] / math.sqrt(max(1, tensor.numel())))
    numbers = sum(tensor.numel() for tensor in tensors.values())
    mean = math.hypot(*sizes.values()) / math.sqrt(max(1, numbers)) if over_all else 0.0
    return {
        name: math.sqrt(tensor.numel()) * max(of_module[name.rpartition(".")[0]], mean)
        for name, tensor in tensors.items()
    }


def compare_buffers(
    before: Tensors, eager: Tensors, captured: Tensors, rounding: Rounding, what: str = CAPTURED
) -> None:
    """What the forward pass moved: statistics, counts, the loss scale."""
    real = {name: tensor for name, tensor in eager.items() if tensor.is_floating_point() or tensor.is_complex()}
    sizes, old = norms(list(real.values()), list(real)), norms([before[name] for name in real], list(real))
    floors = _floors(real, sizes, over_all=False)
    for name, one in eager.items():
        if are_same(one, captured[name]):
            continue
        (apart,) = distances([one], [captured[name]])
        allowed = PER_TENSOR * rounding.share * max(sizes[name], old[name], floors[name]) if name in real else 0.0
        if not apart <= allowed:
            raise Refusal(f"{what} left something else in {name} than an eager one ({apart:.1e} apart, {rounding})")


def compare_losses(eager: float, captured: float, sensitivity: float, rounding: Rounding, what: str = CAPTURED) -> None:
    """``sensitivity``: by how much the loss would move if every weight did by all of itself, each its own way."""
    if eager == captured or (eager != eager and captured != captured):
        return
    if not (math.isfinite(eager) and abs(captured - eager) <= rounding.share * (abs(eager) + sensitivity)):
        raise Refusal(f"{what} gave another loss than an eager one ({captured} instead of {eager})")


def loss_sensitivity(named: Tensors, gradients: Tensors) -> float:
    """How much the loss would move if each weight did by all of itself, up or down by chance."""
    squares = [(gradient.float() * named[name].float()).square().sum() for name, gradient in gradients.items()]
    return math.sqrt(float(torch.stack(squares).double().sum())) if squares else 0.0


def compare_updates(before: Tensors, eager: Tensors, captured: Tensors, weights: list[str]) -> float:
    """What an optimizer made of the same gradients: weights and its own state. The difference as a share of the update.

    Counts of steps must be the same; the rest may differ by how numbers of their type are rounded.
    """
    furthest = 0.0
    names = [name for name in eager if not are_same(eager[name], captured[name])]
    for name in names:
        one, other, old = (tensors[name] for tensors in (eager, captured, before))
        (apart,), (way,) = distances([one], [other]), distances([one], [old])
        size = sum(norms([one, old], ["one", "old"]).values())
        epsilon = torch.finfo(one.dtype).eps if one.is_floating_point() else 0.0
        of_value = 1.0 if name in weights else OF_VALUE  # a weight is rounded once, to the next number
        allowed = of_value * epsilon * size + max(OF_UPDATE, 32 * epsilon) * way
        if name.endswith(" step") or not apart <= allowed:
            raise Refusal(
                f"the captured optimizer made something else of the same gradients ({name}: {apart:.1e} apart after a "
                f"way of {way:.1e})"
            )
        if name in weights and way:
            furthest = max(furthest, apart / way)
    return furthest


def norms(tensors: list[Tensor], names: list[str]) -> dict[str, float]:
    return dict(zip(names, _numbers([_size(tensor) for tensor in tensors]), strict=True))


def distances(ones: list[Tensor], others: list[Tensor]) -> list[float]:
    """How far each is from its other; infinite where one has a bad number and the other has not."""
    return _numbers([_distance(one, other.to(one.device)) for one, other in zip(ones, others, strict=True)])


def are_same(one: Tensor, other: Tensor) -> bool:
    """To the bit, where NaN is the same as NaN."""
    other = other.to(one.device)
    if torch.equal(one, other):
        return True
    bad = one.is_floating_point() or one.is_complex()
    return bad and one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def _distance(one: Tensor, other: Tensor) -> Tensor:
    one, other = _wide(one), _wide(other)
    difference = torch.where((one == other) | (one.isnan() & other.isnan()), torch.zeros_like(one), one - other)
    apart: Tensor = torch.linalg.vector_norm(difference.nan_to_num(math.inf, math.inf, math.inf), dtype=torch.float64)
    return apart


def _size(tensor: Tensor) -> Tensor:
    """Of its finite numbers: the others are compared one by one."""
    size: Tensor = torch.linalg.vector_norm(_wide(tensor).nan_to_num(0.0, 0.0, 0.0), dtype=torch.float64)
    return size


def _wide(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def _numbers(values: list[Tensor]) -> list[float]:
    """The device is asked once."""
    if not values:
        return []
    return [float(value) for value in torch.stack([value.to(values[0].device) for value in values]).tolist()]
