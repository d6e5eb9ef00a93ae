"""Whether what is computed for a sample depends on which others are computed beside it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from brim.data import Batch, batch_length
from brim.data.batches.batch import named_tensors, select_rows
from brim.engine.oom.out_of_memory import is_out_of_memory
from brim.engine.sandbox.trial_call import trial_call

TRIED_SAMPLES = 8
TOLERANCE = 1e-3  # of the largest number: shapes choose kernels, and half precision rounds by this much


def rows_differ(compute: Callable[[Batch], Any], batch: Batch, *roots: Any) -> bool:
    """Whether the results of a few samples are not those of their halves; also where that cannot be told.

    ``roots``: the model and whatever else of the user's is called, which must not notice.
    """
    samples = min(TRIED_SAMPLES, batch_length(batch))
    while samples >= 2:
        try:
            with trial_call(*roots, but_for=[root for root in roots if isinstance(root, nn.Module)]):
                return _rows_differ(compute, batch, samples)
        except Exception as error:
            if not is_out_of_memory(error):
                return True
        samples //= 2
    return False  # a single sample stands for itself


def _rows_differ(compute: Callable[[Batch], Any], batch: Batch, samples: int) -> bool:
    rows = torch.arange(samples)
    whole = [tensor for _, tensor in named_tensors(compute(select_rows(batch, rows)))]
    for part in (rows[: samples // 2], rows[samples // 2 :]):
        mine = [tensor for _, tensor in named_tensors(compute(select_rows(batch, part)))]
        if len(mine) != len(whole) or any(_differ(a, b, part) for a, b in zip(whole, mine, strict=True)):
            return True
    return False


def _differ(whole: Tensor, mine: Tensor, rows: Tensor) -> bool:
    if mine.dim() == 0 or len(mine) != len(rows):
        return True
    wanted = whole[rows.to(whole.device)]
    if wanted.shape != mine.shape:
        return True
    if not mine.is_floating_point():
        return not torch.equal(wanted, mine)
    if not wanted.numel():
        return False
    sizes = wanted.float().abs().nan_to_num().amax(0, keepdim=True).clamp_min(1e-30)  # of each column
    return not torch.allclose(wanted.float() / sizes, mine.float() / sizes, rtol=0, atol=TOLERANCE, equal_nan=True)
