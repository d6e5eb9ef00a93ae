"""Exchanges that a model makes by itself: on trial a rank is alone, and would wait for others that do not come."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch.distributed as dist

from brim.engine.captured.report import Refusal
from brim.replaced import replaced

REASON = "the model itself exchanges something with the other ranks (SyncBatchNorm does)"


@contextmanager
def no_exchange() -> Iterator[None]:
    """Refuse collectives of torch.distributed meanwhile."""
    if not (dist.is_available() and dist.is_initialized()):
        yield
        return

    def refuse(group: Any) -> bool:
        raise Refusal(REASON)

    with replaced((dist.distributed_c10d, "_rank_not_in_group", refuse)):  # what every exchange asks first
        yield


def exchanges_made() -> int | None:
    """How many collectives the default group has run so far; None where torch does not tell."""
    with suppress(AttributeError, RuntimeError):
        return int(dist.group.WORLD._get_sequence_number_for_group())  # type: ignore[union-attr]
    return None
