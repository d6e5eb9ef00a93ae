"""What ``trainer.log`` costs the host, in microseconds a call, in a loss and between steps.

python benchmarks/logging_cost.py [cpu|cuda]
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from torch import nn

import brim

CALLS, ROUNDS = 200, 15


class Timed(brim.Callback):
    """Calls ``log`` often after a step, and keeps how long a call took."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, trainer: brim.Trainer, step: int, loss: torch.Tensor) -> None:
        value = loss.detach()
        self.times.append(time_calls(trainer, value))


def time_calls(trainer: brim.Trainer, value: torch.Tensor) -> float:
    began = time.perf_counter()
    for _ in range(CALLS):
        trainer.log("value", value)
    return (time.perf_counter() - began) / CALLS * 1e6


def measure(device: str) -> tuple[float, float]:
    """Microseconds of a call in the loss, and in a callback: the median of the rounds."""
    in_loss: list[float] = []

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        found = model(batch).square().mean()
        in_loss.append(time_calls(trainer, found))
        return found

    data = [torch.randn(32, 8) for _ in range(ROUNDS)]
    callback = Timed()
    with tempfile.TemporaryDirectory() as folder:
        trainer = brim.Trainer(
            nn.Linear(8, 1), data, loss_fn=loss, device=device, threads=1, run_dir=Path(folder) / "run",
            callbacks=[callback], capture="off", micro_batch=32,
        )  # fmt: skip
        trainer.fit()
    return median(in_loss), median(callback.times)


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    in_loss, in_callback = measure(chosen)
    print(f"trainer.log on {chosen}, microseconds a call: {in_loss:.1f} in a loss, {in_callback:.1f} in a callback")
