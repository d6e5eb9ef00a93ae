"""Real steps on the device that is here."""

import pytest
import torch
from torch import nn

from brim.errors import ModelError
from brim.memory.forecast import make_job
from brim.speed_up.measured_step import LEAST_STEPS, measure_step

CPU = torch.device("cpu")


def rows(width: int = 64):
    return lambda n: ((torch.randn(n, width),), {})


def test_a_step_on_the_cpu_takes_time_and_has_no_host_beside_it() -> None:
    time = measure_step(make_job(lambda: nn.Linear(64, 64), rows()), 32, CPU)
    assert time.gpu_passes > 0
    assert time.gpu_optimizer > 0
    assert time.host == 0
    assert time.seconds == time.gpu


def test_what_is_measured_are_steps_of_the_batch_size_asked_for() -> None:
    sizes = []

    class Counting(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sizes.append(len(x))
            return super().forward(x)

    measure_step(make_job(lambda: Counting(64, 64), rows()), 48, CPU)
    assert len(sizes) >= LEAST_STEPS and sizes[-LEAST_STEPS:] == [48] * LEAST_STEPS


@pytest.mark.parametrize("as_function", [False, True])
def test_the_model_that_is_measured_is_a_copy_and_nobody_s_random_numbers_change(as_function: bool) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(), nn.BatchNorm1d(64)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    measure_step(make_job((lambda: model) if as_function else model, rows()), 8, CPU)
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_lazy_modules_mixed_precision_and_clipping_are_measured_too() -> None:
    job = make_job(lambda: nn.LazyLinear(8), rows(), precision="bf16", clip_norm=1.0)
    assert measure_step(job, 8, CPU).seconds > 0


def test_tf32_is_as_it_was_afterwards() -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    measure_step(make_job(lambda: nn.Linear(64, 64), rows(), precision="tf32"), 8, CPU)
    assert torch.backends.cuda.matmul.allow_tf32 == before


def test_what_goes_wrong_in_the_user_s_code_is_the_user_s_error() -> None:
    with pytest.raises(ModelError, match=r"measuring a step failed.*RuntimeError: mat1 and mat2"):
        measure_step(make_job(lambda: nn.Linear(8, 8), rows()), 8, CPU)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_gpu_the_host_is_measured_beside_it() -> None:
    time = measure_step(make_job(lambda: nn.Linear(64, 64), rows()), 32, torch.device("cuda"))
    assert 0 < time.host <= time.gpu
