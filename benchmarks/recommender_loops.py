"""An epoch of a recommender on CPU cores: the loop that people write first, the same in Lightning, and in brim.

    python benchmarks/recommender_loops.py [--rounds 5] [--epochs 3] [--loads idle busy] [--json out.json]

Model, triples and batch size are those of ``benchmarks/before/recommender.py``, whose data set gives one triple at a
time; every contender gets that data set as it stands. The loop and Lightning read it with a DataLoader, without workers
and with as many as there are cores; brim chooses workers by itself, or is told that a list of indices gives a batch
(``feed="batched"``), which it checks. Each training is a process of its own, in turns; the first
epoch warms up and the median of the others counts. ``busy`` is the same while another process keeps one core at work.
The loss of the last epoch is shown, since it should not differ by more than the order of samples makes it.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from about import about
from threads import load
from torch import Tensor, nn
from torch.utils.data import DataLoader

BEFORE = Path(__file__).parent / "before" / "recommender.py"
BATCH, RATE = 2048, 1e-3
LOOP, LIGHTNING, BRIM_BY_ONE, BRIM = "plain loop", "Lightning", "brim", "brim, feed='batched'"
BARS = {"idle": 1.5, "busy": 5.0}
Timed = tuple[list[float], float]  # seconds of each epoch, and the mean loss of the last


def script() -> Any:
    """The module of the script as people write it first."""
    spec = importlib.util.spec_from_file_location("recommender_before", BEFORE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bpr_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    better = model(batch["user"], batch["positive"]) - model(batch["user"], batch["negative"])
    return -nn.functional.logsigmoid(better).mean()


def loader(workers: int) -> DataLoader[Any]:
    return DataLoader(script().Triples(), BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)


def by_loop(epochs: int, workers: int) -> Timed:
    batches, model = loader(workers), script().Recommender()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    seconds, total = [], 0.0
    for _ in range(epochs):
        began, total = time.perf_counter(), 0.0
        for batch in batches:
            optimizer.zero_grad()
            loss = bpr_loss(model, batch)
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds.append(time.perf_counter() - began)
    return seconds, total / len(batches)


def by_lightning(epochs: int, workers: int) -> Timed:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = script().Recommender()
            self.seconds: list[float] = []
            self.began, self.total, self.steps = 0.0, torch.zeros(()), 0

        def training_step(self, batch: dict[str, Tensor]) -> Tensor:
            loss = bpr_loss(self.model, batch)
            self.total, self.steps = self.total + loss.detach(), self.steps + 1
            return loss

        def on_train_epoch_start(self) -> None:
            self.began, self.total, self.steps = time.perf_counter(), torch.zeros(()), 0

        def on_train_epoch_end(self) -> None:
            self.seconds.append(time.perf_counter() - self.began)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=RATE)

    module = Module()
    lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(module, loader(workers))  # fmt: skip
    return module.seconds, float(module.total) / module.steps


def by_brim(epochs: int, workers: int, feed: str = "auto") -> Timed:
    import brim

    class Clock(brim.Callback):
        def __init__(self) -> None:
            self.seconds: list[float] = []
            self.began, self.total, self.steps = 0.0, torch.zeros(()), 0

        def on_epoch_start(self, trainer: Any, epoch: int) -> None:
            self.began, self.total, self.steps = time.perf_counter(), torch.zeros(()), 0

        def on_step_end(self, trainer: Any, step: int, loss: Tensor) -> None:
            self.total, self.steps = self.total + loss.detach(), self.steps + 1

        def on_epoch_end(self, trainer: Any, epoch: int) -> None:
            self.seconds.append(time.perf_counter() - self.began)

    clock, data = Clock(), brim.Loader(script().Triples(), batch_size=BATCH, shuffle=True, feed=feed)
    with tempfile.TemporaryDirectory() as folder:
        brim.Trainer(
            script().Recommender(), data, loss_fn=bpr_loss, optimizer="Adam", lr=RATE, epochs=epochs, device="cpu",
            run_dir=Path(folder) / "run", callbacks=[clock],
        ).fit()  # fmt: skip
    return clock.seconds, float(clock.total) / clock.steps


CONTENDERS: dict[str, Callable[[int, int], Timed]] = {
    LOOP: by_loop, LIGHTNING: by_lightning, BRIM_BY_ONE: by_brim, BRIM: partial(by_brim, feed="batched"),
}  # fmt: skip


def alone(name: str, workers: int, epochs: int) -> Timed:
    """One training, in a process as a user's script is one: no threads, no caches, workers that are forked."""
    command = [sys.executable, __file__, "--one", name, str(workers), "--epochs", str(epochs)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds, loss = json.loads(done.stdout.splitlines()[-1])
    return seconds, loss


def measure(kind: str, rounds: int, epochs: int) -> dict[str, dict[str, list[float]]]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    rows = {f"{name}, {workers} workers": (name, workers) for name in (LOOP, LIGHTNING) for workers in (0, cores)}
    rows |= {name: (name, 0) for name in (BRIM_BY_ONE, BRIM)}  # it chooses workers itself
    found: dict[str, dict[str, list[float]]] = {row: {"seconds": [], "loss": []} for row in rows}
    with load(kind):
        for _ in range(rounds):
            for row, (name, workers) in rows.items():
                seconds, loss = alone(name, workers, epochs)
                found[row]["seconds"].append(statistics.median(seconds[1:]))
                found[row]["loss"].append(loss)
                print(f"  {kind:5} {row:24} {found[row]['seconds'][-1]:8.2f} s", flush=True)
    return found


def summary(found: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, Any]]:
    """Medians, and how many times as long as brim's each epoch took, by round.

    >>> two = {BRIM: {"seconds": [1.0, 1.0], "loss": [0.5]}, "plain loop": {"seconds": [2.0, 4.0], "loss": [0.5]}}
    >>> summary(two)["plain loop"]["times_brim"]
    3.0
    """
    rows = {}
    for row, values in found.items():
        ratios = [mine / brims for mine, brims in zip(values["seconds"], found[BRIM]["seconds"], strict=True)]
        rows[row] = {
            "seconds": statistics.median(values["seconds"]), "times_brim": statistics.median(ratios),
            "range": [min(ratios), max(ratios)], "loss": statistics.median(values["loss"]), "rounds": values["seconds"],
        }  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--loads", nargs="+", choices=("idle", "busy"), default=["idle", "busy"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.epochs < 2:
        parser.error("--epochs must be at least 2: the first warms up")
    if asked.one:
        name, workers = asked.one
        warnings.filterwarnings("ignore")
        torch.manual_seed(0)
        print(json.dumps(CONTENDERS[name](asked.epochs, int(workers))))
        return
    facts, loads = about("lightning"), {}
    for kind in asked.loads:
        loads[kind] = summary(measure(kind, asked.rounds, asked.epochs))
        print(f"{kind}: an epoch of {script().TRIPLES:,} triples")
        for row, values in loads[kind].items():
            low, high = values["range"]
            print(
                f"  {row:24}{values['seconds']:8.2f} s{values['times_brim']:8.2f} x brim ({low:.2f} to {high:.2f})"
                f"   loss {values['loss']:.4f}"
            )
        best = min(values["times_brim"] for row, values in loads[kind].items() if "brim" not in row)
        print(f"  {BRIM} is {best:.2f} times as fast as the fastest of them; bar {BARS[kind]}", flush=True)
        if asked.json:
            asked.json.write_text(json.dumps({**facts, "loads": loads, "bars": BARS}, indent=2) + "\n")


if __name__ == "__main__":
    main()
