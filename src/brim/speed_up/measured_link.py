"""How fast the link between the processes here is: a few real all-reduces."""

import os
import statistics
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from brim.errors import ConfigError
from brim.hardware.links import Link
from brim.speed_up.collectives import BUCKET_BYTES

ROUNDS, WARM_UP = 10, 3
SMALL = 8
TIMEOUT = timedelta(minutes=2)


def measure_all_reduce(size: int, rounds: int = ROUNDS) -> float:
    """Seconds that all processes of the default group take to add up ``size`` bytes: the median of some rounds.

    All of them must call it. The tensor lies on this process's GPU where the group talks over NCCL, else on the CPU.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise ConfigError("there is no process group to measure; start several processes with torchrun")
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    numbers = torch.zeros(max(1, size // 4), device=device)
    found = []
    for _ in range(WARM_UP + rounds):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(numbers)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - began)
    slowest = torch.tensor(statistics.median(found[WARM_UP:]), device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)  # so that all processes go on with the same figure
    return float(slowest)


def measured_link(size: int = BUCKET_BYTES) -> Link:
    """The link that explains how long the smallest all-reduce takes, and one of ``size`` bytes, as a ring."""
    with_nothing, with_much = measure_all_reduce(SMALL), measure_all_reduce(size)
    ranks = dist.get_world_size()
    if ranks < 2:
        raise ConfigError("a link needs two processes to be measured between; start several with torchrun")
    hops = 2 * (ranks - 1)
    # On a noisy machine the large one may seem to take no longer; then it is the small one that says nothing.
    seconds = max(with_much - with_nothing, with_much / 10)
    name = f"{dist.get_backend()} over {ranks} processes"
    return Link(name, hops / ranks * size / seconds, with_nothing / hops, measured=True)


def join_process_group() -> None:
    """Meet the processes that torchrun started with this one, each on a GPU of its own if there are enough."""
    if dist.is_initialized():
        return
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
        raise ConfigError("a link is measured between processes: torchrun --nproc-per-node=N -m brim plan ...")
    own, here = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    has_gpu = torch.cuda.is_available() and here <= torch.cuda.device_count()
    if has_gpu:
        torch.cuda.set_device(own)
    dist.init_process_group("nccl" if has_gpu else "gloo", timeout=TIMEOUT)
