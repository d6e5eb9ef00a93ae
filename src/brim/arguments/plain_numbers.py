"""Numbers of numpy and torch as Python's own, which settings are compared with and written down as."""

from typing import Any

import numpy as np
from torch import Tensor


def as_plain(value: Any) -> Any:
    """A single number of numpy's or torch's as Python's; anything else as it is.

    >>> as_plain(np.int64(2)), as_plain([1])
    (2, [1])
    """
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    if isinstance(value, Tensor) and value.dim() == 0 and not value.requires_grad and not value.is_meta:
        return value.item()
    return value
