"""What ``train_ds``, ``valid_ds`` and ``test_ds`` say about how the user's data is batched and read."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from brim.data import Loader, as_feed
from brim.engine.components.settings import shorten
from brim.engine.evaluation.evaluation import Evaluator
from brim.errors import ConfigError
from brim.workloads.sections import LoaderSection


def with_settings(data: Any, section: LoaderSection, place: str, **further: Any) -> Any:
    """``data`` in batches as the section says; what makes its own batches must not contradict it.

    Args:
        data: what the user's code handed over, or None.
        section: the settings.
        place: the name of the section, for messages.
        further: settings that are taken where they can be, such as ``shuffle=False``.
    """
    asked = section.asked
    if data is None and asked:
        raise ConfigError(f"{place}: there is no data for it; the workload returns none, so leave {place} out")
    if data is None or (not asked and not further):
        return data
    has_own = own_settings(data)
    if has_own is not None:
        _refuse_contradictions(data, asked, has_own, place)
        return data
    feed = None if isinstance(data, Evaluator) else as_feed(data)
    if not isinstance(feed, Loader):
        _refuse_contradictions(data, asked, {}, place)
        return data
    if feed.samples is None:
        _check_stream(asked, place)
    return Loader(feed.data, collate_fn=feed.request.collate, **{**further, **asked})


def _check_stream(asked: Mapping[str, Any], place: str) -> None:
    name = next((name for name in ("shuffle", "num_workers") if asked.get(name) not in (None, False, 0, "auto")), None)
    if name is not None:
        raise ConfigError(
            f"{place}.{name}={shorten(asked[name])} cannot act: the data is a stream, which has its own order and is "
            "read in one process; leave it out"
        )


def own_settings(data: Any) -> dict[str, Any] | None:
    """The settings of a loader that the user made; None where the data has none of its own."""
    if isinstance(data, Loader):
        request = data.request
        pinned = {"pin_memory": request.settings.pin_memory} if torch.cuda.is_available() else {}
        return {
            **pinned,
            "batch_size": data.batch_size, "shuffle": data.shuffle, "drop_last": data.drop_last,
            "num_workers": "auto" if request.workers is None else request.workers,
            "prefetch_factor": request.prefetch, "persistent_workers": request.settings.persistent,
        }  # fmt: skip
    if not isinstance(data, DataLoader):
        return None
    batches = data.batch_sampler
    known = {
        "num_workers": data.num_workers, "pin_memory": data.pin_memory, "prefetch_factor": data.prefetch_factor,
        "persistent_workers": data.persistent_workers,
    }  # fmt: skip
    if type(batches) is BatchSampler:  # another one decides by itself what a batch is
        known.update(batch_size=batches.batch_size, drop_last=batches.drop_last)
        known.update(shuffle=type(batches.sampler) is not SequentialSampler)
    return known


def _refuse_contradictions(data: Any, asked: Mapping[str, Any], has: Mapping[str, Any], place: str) -> None:
    kind = type(data).__name__
    for name, value in asked.items():
        if name == "pin_memory" and not torch.cuda.is_available():
            continue  # dropped quietly where there is no GPU, as everywhere
        if name not in has:
            raise ConfigError(
                f"{place}.{name}={shorten(value)} cannot act: the data is a {kind}, which makes its own batches; hand "
                f"over a Dataset or arrays, or leave it out"
            )
        if has[name] != value:
            raise ConfigError(
                f"{place}.{name}={shorten(value)} contradicts the {kind} of the workload, which has {name}="
                f"{shorten(has[name])}; leave it out, or hand over the Dataset"
            )
