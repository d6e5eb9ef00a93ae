"""Whether a batch may be sliced: whether its loss is what its slices' losses add up to."""

import torch
from torch import Tensor, nn

from brim.data import Batch, batch_length, slice_batch
from brim.data.batch import first_tensor
from brim.engine.loss import LossOf, as_sum
from brim.engine.out_of_memory import is_out_of_memory

TRIED_SAMPLES = 8
TOLERANCE = 1e-3
HALF_TOLERANCE = 5e-2  # weights of 8 or 11 bits round differently in other shapes


def why_not_sliceable(compute: LossOf, model: nn.Module | None, batch: Batch) -> str | None:
    """A sentence where the loss of a few samples is not that of their halves; None where it is, or cannot be told.

    Losses that look across the batch (contrastive, in-batch negatives) show it, and so do means over something else
    than samples. Asked in evaluation mode: dropout would draw differently, and norms have their own rule.
    """
    samples = min(TRIED_SAMPLES, batch_length(batch))
    while samples >= 2:
        means = _means(compute, model, batch, samples)
        if means is not None:
            return _verdict(*means, samples, _tolerance(model))
        samples //= 2
    return None


def _means(compute: LossOf, model: nn.Module | None, batch: Batch, samples: int) -> tuple[float, float] | None:
    """The loss of so many samples, and that of their halves together; None where even they are too many."""
    modes = {} if model is None else {module: module.training for module in model.modules()}
    try:
        if model is not None:
            model.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=_gpus(batch)):
            total, count = _loss(compute, batch, 0, samples)
            halves = [_loss(compute, batch, 0, samples // 2), _loss(compute, batch, samples // 2, samples)]
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None
    finally:
        for module, training in modes.items():
            module.training = training
    return total / max(count, 1e-12), sum(t for t, _ in halves) / max(sum(c for _, c in halves), 1e-12)


def _verdict(mean: float, sliced: float, samples: int, tolerance: float) -> str | None:
    if abs(mean - sliced) <= tolerance * max(abs(mean), abs(sliced), 1e-6):
        return None
    return (
        f"the loss of {samples} samples is {mean:.5g}, and that of their halves together {sliced:.5g}: it looks across "
        "the batch, or is a mean over something else than samples (then return brim.Loss(total, count)); "
        "sliceable=True slices it all the same"
    )


def _loss(compute: LossOf, batch: Batch, start: int, stop: int) -> tuple[float, float]:
    loss = as_sum(compute(slice_batch(batch, start, stop)), stop - start)
    return float(loss.total), float(loss.count)


def _tolerance(model: nn.Module | None) -> float:
    if torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"):
        return HALF_TOLERANCE
    parameter: Tensor | None = None if model is None else next(model.parameters(), None)
    return TOLERANCE if parameter is None or parameter.element_size() >= 4 else HALF_TOLERANCE


def _gpus(batch: Batch) -> list[int]:
    """The GPU whose random numbers the tries use, and must not use up."""
    tensor = first_tensor(batch)
    return [tensor.get_device()] if tensor is not None and tensor.is_cuda else []
