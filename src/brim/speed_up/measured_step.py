"""How long a step takes on the device that is here: a few real ones, with a copy of the model."""

import copy
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from brim.float32_products import float32_products
from brim.memory.trace.steps import BF16_TRUE, DTYPES, Job, generators_put_back
from brim.module_modes import set_training_modes
from brim.speed_up.step_time import StepTime
from brim.user_line import users_errors

WARM_UP, MOST_STEPS, LEAST_STEPS = 3, 20, 3
LONG_ENOUGH = 3.0  # seconds of steps at one size


def device_here() -> torch.device:
    """The first GPU, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def measure_step(job: Job, samples: int, device: torch.device) -> StepTime:
    """The median of some steps, one after the other, with what the host took of them where it is not the device.

    All has ended on the device before the optimizer steps and after it, as it has between ranks that exchange there.
    """
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    with users_errors("measuring a step"), _products_in(job.precision), generators_put_back(devices):
        one_step = _make_step(job, samples, device)
        for _ in range(WARM_UP):
            one_step()
        began, found = time.perf_counter(), list[StepTime]()
        while len(found) < MOST_STEPS and (len(found) < LEAST_STEPS or time.perf_counter() - began < LONG_ENOUGH):
            found.append(one_step())
    names = ("host_forward", "host_backward", "host_optimizer", "gpu_passes", "gpu_optimizer")
    return StepTime(*(statistics.median(getattr(step, name) for step in found) for name in names))


def _make_step(job: Job, samples: int, device: torch.device) -> Callable[[], StepTime]:
    made = job.model if isinstance(job.model, nn.Module) else job.model()
    model = copy.deepcopy(made).to(device)  # a function too may hand out a model that is in use elsewhere
    set_training_modes(model)
    args, kwargs = tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, job.batch(samples))
    dtype = DTYPES[job.precision]
    with torch.no_grad(), torch.autocast(device.type, dtype, enabled=dtype is not None):
        model(*args, **kwargs)  # lazy modules get their parameters, and the optimizer wants to see those
    if job.precision == BF16_TRUE:
        model.bfloat16()
        args, kwargs = tree_map(_as_bf16, (args, kwargs))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = job.optimizer(trained)
    on_host = device.type == "cpu"  # then there is nobody to launch for

    def ended() -> float:
        if not on_host:
            torch.cuda.synchronize(device)
        return time.perf_counter()

    def step() -> StepTime:
        stamps = [ended()]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype, enabled=dtype is not None):
            loss = job.loss(model(*args, **kwargs))
        stamps.append(time.perf_counter())
        loss.backward()  # type: ignore[no-untyped-call]
        stamps += [time.perf_counter(), ended()]
        if job.clip_norm is not None:
            nn.utils.clip_grad_norm_(trained, job.clip_norm)
        optimizer.step()
        stamps += [time.perf_counter(), ended()]
        start, forward, backward, passed, stepped, end = stamps
        host = (0.0, 0.0, 0.0) if on_host else (forward - start, backward - forward, stepped - passed)
        return StepTime(*host, passed - start, end - passed)

    return step


def _as_bf16(leaf: Any) -> Any:
    return leaf.bfloat16() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _products_in(precision: str) -> AbstractContextManager[None]:
    """TF32 where it was asked for, and as it was before afterwards."""
    return float32_products(True if precision == "tf32" else None)
