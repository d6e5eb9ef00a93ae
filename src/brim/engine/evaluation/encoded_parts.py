"""The loss of a whole batch that is encoded in micro-batches, without gradients."""

from torch import Tensor

from brim.data import Batch, batch_length, slice_batch
from brim.data.randomness.order import even_bounds
from brim.engine.components.loss import CountedLoss, Loss, counted, loss_in
from brim.engine.components.two_pass import check_rows, joined, loss_of_outputs


def loss_in_parts(loss: CountedLoss, size: int, batch: Batch) -> Tensor | Loss:
    """What ``loss(batch)`` gives, of at most ``size`` samples encoded at once."""
    two_pass = loss.two_pass
    assert two_pass is not None
    count = loss.count_of(batch)
    parts = []
    for start, stop in even_bounds(batch_length(batch), size):
        parts.append(two_pass.encode(loss.model, slice_batch(batch, start, stop)))
        check_rows(parts[-1], stop - start)
    found = loss_in(loss_of_outputs(two_pass.loss, loss.model, joined(parts)), loss.notes)
    return found if count is None else counted(found, count)
