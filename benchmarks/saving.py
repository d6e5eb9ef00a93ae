"""What checkpoints cost a run: GPT-2 124M with a checkpoint every 500 steps, beside the same run without any.

The stretch that is timed begins 250 steps before a save and ends 250 steps after it, so that it holds the copy of the
state, and the writing of it in the background, once in 500 steps.

    python benchmarks/saving.py [--every 500] [--rounds 1] [--json out.json]
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from about import about
from transformers import GPT2Config, GPT2LMHeadModel

import brim

BATCH, LENGTH = 8, 512


class Clock(brim.Callback):
    """The time between two steps, the device's queue included."""

    def __init__(self, first: int, last: int) -> None:
        self.bounds = {first, last}
        self.stamps: list[float] = []

    def on_step_end(self, trainer: Any, step: int, loss: Any) -> None:
        if step in self.bounds:
            torch.cuda.synchronize()
            self.stamps.append(time.perf_counter())


def milliseconds(every: int | None, steps: int) -> float:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config())
    batches = [torch.randint(0, 50257, (BATCH, LENGTH)) for _ in range(8)]
    clock = Clock(steps // 2, steps + steps // 2)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BRIM_BENCH_DIR")) as folder:
        brim.Trainer(
            model, batches, loss_fn=lambda model, ids: model(input_ids=ids, labels=ids).loss, optimizer="adamw",
            precision="bf16-mixed", max_steps=steps + steps // 2, epochs=10**6, callbacks=[clock], capture="off",
            checkpoint_every=every or 10**9, run_dir=Path(folder) / "run",
        ).fit()  # fmt: skip
    return (clock.stamps[1] - clock.stamps[0]) / steps * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    facts, without, saving = about("transformers"), list[float](), list[float]()
    for _ in range(options.rounds):
        without.append(milliseconds(None, options.every))
        saving.append(milliseconds(options.every, options.every))
    result = {
        **facts,
        "model": f"GPT-2 124M, batch {BATCH} x {LENGTH}, bf16, AdamW", "a checkpoint every": options.every,
        "ms a step, none": round(statistics.median(without), 3),
        "ms a step, saving": round(statistics.median(saving), 3),
        "ratio": round(statistics.median(s / w for s, w in zip(saving, without, strict=True)), 4),
        "rounds, ms a step": {"none": without, "saving": saving},
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
