"""Whether several GPUs in one process would be faster than one: asked of the forecast before training begins.

DataParallel copies the weights in every step and one Python drives all GPUs, so a small model trains at a fraction of
the speed of one GPU.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from brim.data import Batch, Loader, as_feed, batch_length
from brim.data.columns.column_view import view_of
from brim.engine.components.loss import LossFunction, loss_of
from brim.engine.components.optimizer import optimizer_maker
from brim.engine.components.settings import TrainerSettings
from brim.engine.components.two_pass import TwoPass
from brim.engine.data_parallel.data_parallel import TWO_PASSES
from brim.engine.sandbox.trial_call import trial_call
from brim.engine.step.resized import batches_like
from brim.hardware import inventory
from brim.hardware.cards import card_of


def why_one_is_faster(
    model: nn.Module,
    loss_fn: LossFunction | None,
    data: Any,
    settings: TrainerSettings,
    devices: Sequence[torch.device],
) -> str:
    """A sentence where DataParallel on ``devices`` is forecast to be slower than the first alone, or cannot be used.

    Nothing where it is not, or where nobody knows: the forecast may fail, and data that may not be read twice (all but
    columns in memory, and data that is made on the device) is not read for it.
    """
    if isinstance(loss_fn, TwoPass):
        return f"{TWO_PASSES}; training is on {devices[0]} alone"
    try:
        example = example_batch(data)
        gain = None if example is None else forecast_gain(model, loss_fn, example, settings, devices)
    except Exception:  # operators nobody thought of, cards nobody has measured: the run itself decides nothing by it
        return ""
    if gain is None or gain >= 1:
        return ""
    return (
        f"DataParallel on {len(devices)} GPUs is forecast to train at {gain:.2f} of the speed of one, so training is "
        f"on {devices[0]} alone; torchrun or brim train uses all of them, and strategy='dp' does so here"
    )


def example_batch(data: Any) -> Batch | None:
    """The first batch of data that can be read again without a trace; None of any other."""
    feed = as_feed(data)
    if getattr(feed, "hands_out_blocks", False):  # a function of seed, epoch and position
        return next(iter(feed.in_order()), None)
    if not isinstance(feed, Loader) or feed.samples is None or view_of(feed.data) is None:
        return None
    fresh = Loader(feed.data, feed.batch_size, shuffle=False, collate_fn=feed.request.collate)
    return next(iter(fresh.in_order()), None)


def forecast_gain(
    model: nn.Module,
    loss_fn: LossFunction | None,
    example: Batch,
    settings: TrainerSettings,
    devices: Sequence[torch.device],
) -> float:
    """How many times as fast as one GPU so many are with DataParallel, by the forecast for batches such as this one."""
    from brim.memory.planning.estimates import ModelWithLoss  # which most runs never need
    from brim.speed_up.forecast import speed_up

    home = devices[0]
    card = card_of(inventory().gpus[home.index or 0])
    with trial_call(model, loss_fn, device=home if torch.cuda.is_available() else None, but_for=[model]):
        made = speed_up(
            ModelWithLoss(model, lambda copied, samples: loss_of(copied, loss_fn)(samples)),
            batches_like(example),
            optimizer=optimizer_maker(settings.optimizer, settings.lr),
            batch_size=batch_length(example),
            gpus=(1, len(devices)),
            card=card,
            precision=str(settings.precision),
            accumulation=settings.accumulation,
        )
    return made.row(len(devices), "dp").speed_up
