"""What brim.integrations.accelerate.prefetch brings to a loop of Accelerate's: epochs with it and without it, in turns.

A step is a few matrix products (``--products``); batches are of so many megabytes, in ordinary or page-locked memory. A
ratio below 1 says that an epoch is shorter with the prefetcher. On a CPU it changes nothing, and
the ratio shows how far the machine can tell two equal things apart.

    python benchmarks/accelerate_prefetch.py [--megabytes 1,16,64] [--rounds 7] [--workers 4] [--json out.json]
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from about import about
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

from brim.integrations.accelerate import prefetch

BATCHES, SAMPLES = 40, 16
WIDTH = 2048  # of the product that stands for a step


class Tensors(Dataset[torch.Tensor]):
    """Samples that are ready in memory: what is measured is the way to the device."""

    def __init__(self, megabytes: float) -> None:
        self.samples = torch.rand(BATCHES * SAMPLES, max(1, int(megabytes * 1e6 / 4 / SAMPLES)))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, place: int) -> torch.Tensor:
        return self.samples[place]


def loader_of(accelerator: Accelerator, data: Tensors, pinned: bool, workers: int) -> Any:
    return accelerator.prepare(DataLoader(data, SAMPLES, num_workers=workers, pin_memory=pinned))


def epoch_seconds(loader: Any, weight: torch.Tensor, products: int) -> float:
    """One pass, with so many products a batch; the device is waited for at both ends."""
    is_gpu, total = weight.is_cuda, torch.zeros((), device=weight.device)
    if is_gpu:
        torch.cuda.synchronize()
    began = time.perf_counter()
    for batch in loader:
        for _ in range(products):
            weight = torch.tanh(weight @ weight)
        total += batch.sum() + weight[0, 0]
    if is_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def measured(accelerator: Accelerator, megabytes: float, pinned: bool, options: argparse.Namespace) -> dict[str, Any]:
    data, weight = Tensors(megabytes), torch.rand(WIDTH, WIDTH, device=accelerator.device)
    plain = loader_of(accelerator, data, pinned, options.workers)
    ahead = prefetch(loader_of(accelerator, data, pinned, options.workers))
    for loader in (plain, ahead):
        epoch_seconds(loader, weight, options.products)
    rounds = [[epoch_seconds(one, weight, options.products) for one in (plain, ahead)] for _ in range(options.rounds)]
    ratios = sorted(with_it / without for without, with_it in rounds)
    return {
        "megabytes": megabytes, "pinned": pinned, "ratio": round(statistics.median(ratios), 4),
        "lowest": round(ratios[0], 4), "highest": round(ratios[-1], 4),
        "plain_ms_a_batch": round(1e3 * statistics.median(without for without, _ in rounds) / BATCHES, 3),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", default="1,16,64")
    parser.add_argument("--products", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    accelerator, results = Accelerator(), []
    for megabytes in map(float, options.megabytes.split(",")):
        for pinned in (False, True) if accelerator.device.type == "cuda" else (False,):
            results.append(measured(accelerator, megabytes, pinned, options))
            print(json.dumps(results[-1]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({"about": about("accelerate"), "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
