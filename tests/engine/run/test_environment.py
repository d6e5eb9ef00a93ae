import random
from contextlib import suppress

import numpy as np
import pytest
import torch

from brim.engine.run.environment import training_environment


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
        with training_environment(seed=7, deterministic=False, tf32=None):
            draws.append((torch.rand(1).item(), random.random()))
    assert draws[0] == draws[1]


def draws():
    return torch.rand(3).tolist(), random.random(), np.random.rand(3).tolist(), np.random.randn()


@pytest.mark.parametrize("fails", [False, True])
def test_the_generators_of_the_process_stand_where_they_stood_also_after_an_error(fails):
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(42)
    np.random.randn()  # numpy draws normal numbers in pairs, and keeps the second
    expected = draws()
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(42)
    np.random.randn()
    with suppress(ValueError), training_environment(seed=7, deterministic=False, tf32=None):
        draws()
        if fails:
            raise ValueError
    assert draws() == expected


@pytest.mark.gpu
def test_so_does_the_generator_of_the_gpu():
    torch.rand(1, device="cuda")
    before = torch.cuda.get_rng_state()
    with training_environment(seed=7, deterministic=False, tf32=None):
        torch.rand(1, device="cuda")
    assert torch.equal(torch.cuda.get_rng_state(), before)


@pytest.mark.parametrize("deterministic", [False, True])
def test_determinism_that_only_warns_still_only_warns_afterwards(deterministic):
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with training_environment(seed=1, deterministic=deterministic, tf32=None):
            assert torch.is_deterministic_algorithms_warn_only_enabled() != deterministic
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
