"""The gradients of a step whose loss gathers from other ranks, which all compute the same batch at the same time."""

from collections.abc import Sequence

import torch
from torch import Tensor

from brim.data import Batch, batch_length
from brim.engine.components.loss import Loss
from brim.engine.gathering.gather_session import GatherSession
from brim.engine.numbers.gather_scope import gathering
from brim.engine.oom.out_of_memory import FORWARD
from brim.engine.step.eager_step import EagerStep, WindowLoss
from brim.errors import ConfigError
from brim.gradient_sums import GradientSums


def gathered_gradients(eager: EagerStep, window: Sequence[Batch], session: GatherSession) -> WindowLoss:
    """This rank's summed loss of the window; its gradient, over its number of samples, is in the parameters."""
    _check(eager, window, session)
    eager.numbers = []
    total: Tensor = torch.zeros((), device=eager.precision.device)
    count: Tensor | float = 0
    passes = [len(session.bounds(number, eager.micro_batch)) for number in range(len(window))]
    sums = GradientSums(eager.parameters, sum(passes) + sum(each > 1 for each in passes))
    last = max((number for number, each in enumerate(passes) if each), default=-1)
    for number, batch in enumerate(window):
        eager.phase, session.batch = FORWARD, number
        loss = _of_batch(eager, batch, session, sums, is_last=number == last)
        if loss is not None:
            total, count = total + loss.total.detach(), count + loss.count
            if number != last:
                sums.take()
    return WindowLoss(Loss(total, count), session.samples)


def _of_batch(eager: EagerStep, batch: Batch, session: GatherSession, sums: GradientSums, is_last: bool) -> Loss | None:
    """None where this rank has no sample of the batch, and only takes part."""
    bounds = session.bounds(session.batch, eager.micro_batch)
    if eager.two_passes is None:
        if is_last:
            sums.give()
        with gathering(session):
            return eager.backward_micro_batch(batch, batch_length(batch), session.samples)
    if not bounds:
        eager.two_passes.gather_without_samples(session)
        return None
    return eager.in_two_passes(batch, bounds, session.samples, sums, is_last, session)


def _check(eager: EagerStep, window: Sequence[Batch], session: GatherSession) -> None:
    """Refuse what only a loss in two passes can do; on all ranks alike."""
    if eager.two_passes is not None:
        return
    if eager.micro_batch is not None:
        raise ConfigError(
            f"micro_batch={eager.micro_batch} and brim.gather go together in brim.TwoPass(encode, loss) only: "
            "elsewhere each micro-batch would be compared with those of the other ranks alone"
        )
    if any(session.is_short(number) for number in range(len(window))):
        raise ConfigError(
            "a rank has no sample of this batch, so it cannot take part in brim.gather; use brim.TwoPass(encode, "
            "loss), where it can, or leave short batches out with drop_last=True"
        )
