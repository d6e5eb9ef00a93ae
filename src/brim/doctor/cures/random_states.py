"""Whether something draws random numbers in this process: the states of the generators that scripts share."""

import random
from typing import Any

import numpy as np
import torch


def random_states() -> tuple[Any, ...]:
    """The states of Python's, numpy's and torch's generators, to be compared with later ones.

    >>> before = random_states()
    >>> drawn = torch.rand(1)
    >>> random_states() == before
    False
    """
    kind, keys, *rest = np.random.get_state()
    return (random.getstate(), kind, tuple(keys), tuple(rest), torch.get_rng_state().numpy().tobytes())
