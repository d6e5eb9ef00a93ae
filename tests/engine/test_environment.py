import random

import pytest
import torch

from brim.engine.environment import training_environment


def test_switches_are_put_back_even_after_an_error():
    threads = torch.get_num_threads()
    tf32 = torch.backends.cuda.matmul.allow_tf32
    with pytest.raises(ValueError, match="x"), training_environment(seed=1, deterministic=True, tf32=True):
        torch.set_num_threads(1)
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.backends.cuda.matmul.allow_tf32
        raise ValueError("x")
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cuda.matmul.allow_tf32 == tf32


def test_the_seed_decides_what_is_drawn():
    draws = []
    for _ in range(2):
        with training_environment(seed=7, deterministic=False, tf32=False):
            draws.append((torch.rand(1).item(), random.random()))
    assert draws[0] == draws[1]
