"""In which dimension of the outputs the classes are, where one batch alone does not tell.

Outputs of shape (samples, 5, 5) beside labels (samples, 5) may have their classes second or last, while those of
another length tell. So such a batch is summed up in both ways, and all batches of all ranks decide which one holds.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from brim.engine.calling.criterion import is_torchs_criterion
from brim.engine.evaluation.metrics.classes import ClassScores, class_scores
from brim.engine.evaluation.metrics.seen_batch import WRITE_A_FUNCTION, SeenBatch
from brim.engine.evaluation.metrics.summed_metric import Sums
from brim.errors import ConfigError

SECOND, LAST = 1, -1
TOLD = ((SECOND,), (LAST,), (SECOND, LAST))  # what a batch may tell; how many tell which heads the sums
HEAD = len(TOLD)


def sums_by_axis(sums_of: Callable[[ClassScores], Tensor], seen: SeenBatch) -> Tensor:
    """``HEAD``, then every sum for classes in the second dimension and, beside it, in the last one.

    Beside it, and not behind: a vector of fewer classes is filled up at its end.
    """
    axes = _possible_axes(seen)
    found = [sums_of(class_scores(seen, axis)) for axis in axes or (SECOND,)]
    sums = found[0].new_zeros(HEAD + 2 * len(found[0]))
    pairs = sums[HEAD:].view(-1, 2)
    if len(found) == 1:
        pairs[:] = found[0][:, None]
    else:
        pairs[:] = torch.stack(found, 1)
    if axes:
        sums[TOLD.index(axes)] = 1
    return sums


def finish_by_axis(finish: Callable[[Sums], float], sums: Sums) -> float:
    """The number, by the dimension that the batches tell; refused where they tell none, or both."""
    second, last, either = sums[:HEAD]
    if second and last:
        raise ConfigError(
            "the outputs of some batches have their classes in the second dimension, and those of others in the last; "
            f"{WRITE_A_FUNCTION}"
        )
    if either and not second and not last:
        raise ConfigError(
            "whether classes are the second dimension of the outputs or the last is not known, since both are as long "
            f"as the target in every batch; {WRITE_A_FUNCTION}"
        )
    return finish(sums[HEAD + 1 :: 2] if last else sums[HEAD::2])


def _possible_axes(seen: SeenBatch) -> tuple[int, ...]:
    """Where the classes may be; nothing where there is no choice: one dimension of classes, or one score a target."""
    scores, target = seen.prediction, seen.target
    if scores.dim() < 3 or scores.dim() != target.dim() + 1 or scores.shape[-1] == 1:
        return ()
    is_second = scores.shape[:1] + scores.shape[2:] == target.shape
    is_last = scores.shape[:-1] == target.shape
    if is_second and is_last:
        if not isinstance(seen.outputs, Tensor):  # logits by name, as those of transformers' models
            return (LAST,)
        return (SECOND,) if _is_torchs(seen.loss_fn) else (SECOND, LAST)
    return (SECOND,) if is_second else (LAST,)


def _is_torchs(loss_fn: object) -> bool:
    """Whether the loss is one of torch's, which take classes in the second dimension."""
    while isinstance(loss_fn, functools.partial):
        loss_fn = loss_fn.func
    return callable(loss_fn) and is_torchs_criterion(loss_fn)
