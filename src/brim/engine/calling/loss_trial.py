"""A loss function whose signature does not tell what it takes is tried in both ways, and nothing of that is left."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, default_collate

from brim.data import Batch, Loader, as_feed, move_data_to_device, slice_batch
from brim.data.batches.batch import map_leaves
from brim.data.columns.columns import columns_of
from brim.data.feed import ReadyBatches
from brim.data.probing.dry_run import WouldWriteFiles, dry_run
from brim.engine.calling.loss_form import BOTH_FORMS, LossForm, TriedCriterion, form_of
from brim.engine.calling.model_call import call_model
from brim.engine.sandbox.trial_call import trial_call
from brim.errors import BrimError, ConfigError, a_type, said

TRIED = 2  # samples: norms have no statistics of one


def settle_loss_form(loss_fn: Any, model: nn.Module, data: Any) -> Any:
    """``loss_fn``, marked as a criterion where trying it on two samples of ``data`` shows that it is one.

    What cannot be tried without a trace, such as a stream, leaves it what an unknown function is: of (model, batch).
    """
    if (
        loss_fn is None
        or isinstance(loss_fn, type)
        or not callable(loss_fn)
        or form_of(loss_fn) is not LossForm.UNCLEAR
    ):
        return loss_fn
    batch = two_samples(data)
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        return loss_fn
    outcomes = _try_both(loss_fn, model, batch)
    if outcomes is None:
        return loss_fn
    of_model, of_prediction = outcomes
    if of_model is None and of_prediction is None:
        raise ConfigError(
            f"loss_fn works with (prediction, target) and with (model, batch) alike; {BOTH_FORMS}, by name"
        )
    if of_model is not None and of_prediction is not None:
        raise ConfigError(
            f"loss_fn works neither with (prediction, target): {of_prediction}, nor with (model, batch): {of_model}; "
            f"{BOTH_FORMS}"
        )
    return loss_fn if of_model is None else TriedCriterion(loss_fn)


def two_samples(data: Any) -> Batch | None:
    """Two samples as a batch of its own, read without a trace; None where that cannot be."""
    try:
        return map_leaves(_copied, _first_two(data))  # a loss may write to it
    except (Exception, WouldWriteFiles):  # it is said, with its place, when the data is read in earnest
        return None


def _first_two(data: Any) -> Batch | None:
    feed = as_feed(data)
    if isinstance(feed, ReadyBatches):
        source = feed.source
        return slice_batch(source[0], 0, TRIED) if isinstance(source, list | tuple) and source else None
    if not isinstance(feed, Loader) or isinstance(feed.data, IterableDataset):
        return None
    if (columns := columns_of(feed.data)) is not None and feed.request.collate is None:
        return slice_batch(columns, 0, TRIED)
    if not isinstance(feed.data, Dataset | list):
        return None
    few = min(TRIED, len(feed.data))  # type: ignore[arg-type]
    together = feed.request.collate or default_collate
    return dry_run(lambda apart: apart[1]([apart[0][number] for number in range(few)]), (feed.data, together))


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def _try_both(loss_fn: Any, model: nn.Module, batch: Any) -> tuple[str | None, str | None] | None:
    """What goes wrong with (model, batch) and with (prediction, target); None where neither can be tried."""
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    modes = [(module, module.training) for module in model.modules()]
    try:
        batch = move_data_to_device(batch, device)
        with trial_call(model, loss_fn, device=device, may_step=False) as rewind, torch.enable_grad():
            model.eval()
            prediction = call_model(model, batch[0])
            rewind()
            of_prediction = _why_no_loss(lambda: loss_fn(prediction, batch[1]))
            rewind()
            of_model = _why_no_loss(lambda: loss_fn(model, batch))
    except Exception:  # the model fails by itself, or cannot be called without a trace
        return None
    finally:
        for module, training in modes:
            module.training = training
    return of_model, of_prediction


def _why_no_loss(call: Callable[[], Any]) -> str | None:
    """Why a call gives no loss; None where it gives one."""
    try:
        loss = call()
    except BrimError as error:
        return str(error)
    except Exception as error:
        return said(error)
    if isinstance(loss, Tensor) and loss.dim() == 0:
        return None
    has_loss = hasattr(loss, "loss") or hasattr(loss, "total") or (isinstance(loss, dict) and "loss" in loss)
    return None if has_loss else f"it returns {_described(loss)}"


def _described(loss: Any) -> str:
    return f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"{a_type(loss)}"
