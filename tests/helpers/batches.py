"""Batches that have to be the same to the bit, whichever way they were read."""

from collections.abc import Sequence
from typing import Any

import torch


def assert_same_batches(one: Sequence[Any], other: Sequence[Any]) -> None:
    assert [[type(part) for part in batch] for batch in one] == [[type(part) for part in batch] for batch in other]
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
