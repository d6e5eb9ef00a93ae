"""Choosing the number of CPU threads: brim's own choice beside every fixed number, on an idle and on a busy machine.

The same small training in interleaved rounds: ``threads="auto"``, ``"adaptive"`` and 1 to all cores, first with the
cores to itself, then while another process keeps one core busy, then with that process coming and going. The table
shows steps a second over all steps but the first, trials of other numbers included, and each choice's share of the best
fixed number's; the ratio is taken within a round. Each training is a process of its own: threads that one has started
are not there in the next.

    python benchmarks/threads.py [--rounds 5] [--seconds 8] [--model mlp] [--json out.json]
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from about import about
from torch import nn

WARM_UP = 20  # steps: kernels are chosen, memory is allocated
SPELL = 2.0  # seconds that the other process works, and rests, where it comes and goes
BATCHES = 16


def make_mlp() -> tuple[nn.Module, torch.Tensor]:
    """Steps of a few milliseconds, in which a second thread may help."""
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1)), torch.randn(256, 256)


def make_tiny() -> tuple[nn.Module, torch.Tensor]:
    """Steps of less than a millisecond, in which it cannot."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)), torch.randn(256, 64)


def make_conv() -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32 * 32 * 32, 1)), torch.randn(16, 3, 32, 32)


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "mlp": make_mlp,
    "tiny": make_tiny,
    "conv": make_conv,
}


class TimedBatches:
    """Ready batches for so many seconds after the warm-up; ``steps`` and ``seconds`` say what was made of them."""

    def __init__(self, batch: torch.Tensor, seconds: float) -> None:
        self.batches = [(torch.randn_like(batch), torch.randn(len(batch), 1)) for _ in range(BATCHES)]
        self.limit = seconds
        self.steps, self.seconds = 0, 0.0

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        began = 0.0
        for index in range(10**9):
            if index == WARM_UP:
                began = time.perf_counter()
            if index > WARM_UP:
                self.steps, self.seconds = index - WARM_UP, time.perf_counter() - began
                if self.seconds >= self.limit:
                    return
            yield self.batches[index % BATCHES]


def steps_a_second(model_name: str, threads: int | str, seconds: float) -> float:
    """Of one training, in a process of its own."""
    import brim

    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    model, batch = MODELS[model_name]()
    source = TimedBatches(batch, seconds)
    with tempfile.TemporaryDirectory() as folder:
        trainer = brim.Trainer(
            model, source, loss_fn=nn.MSELoss(), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
            device="cpu", threads=threads, run_dir=Path(folder) / "run",
        )  # fmt: skip
        trainer.fit()
    return source.steps / source.seconds


def keep_busy(works: "multiprocessing.synchronize.Event") -> None:
    """Another process's work: Python alone, on one core, while it is told to; it ends with who started it."""
    parent = os.getppid()
    while os.getppid() == parent:
        if not works.is_set():
            time.sleep(0.01)
            continue
        for _ in range(100_000):
            pass


@contextmanager
def load(kind: str) -> Iterator[None]:
    """``idle``, ``busy`` throughout, or busy in ``spells``."""
    if kind == "idle":
        yield
        return
    context = multiprocessing.get_context("spawn")
    works, is_over = context.Event(), threading.Event()
    hog = context.Process(target=keep_busy, args=(works,), daemon=True)
    hog.start()
    works.set()

    def come_and_go() -> None:
        while not is_over.wait(SPELL):
            works.clear() if works.is_set() else works.set()

    turns = threading.Thread(target=come_and_go)
    if kind == "spells":
        turns.start()
    try:
        yield
    finally:
        is_over.set()
        if kind == "spells":
            turns.join()
        hog.terminate()
        hog.join()


def measure(kind: str, model: str, choices: list[int | str], rounds: int, seconds: float) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {str(choice): [] for choice in choices}
    with load(kind):
        for number in range(rounds):
            start = number % len(choices)
            for choice in choices[start:] + choices[:start]:
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                    rate = alone.submit(steps_a_second, model, choice, seconds).result()
                rates[str(choice)].append(rate)
    return rates


def summary(rates: dict[str, list[float]]) -> dict[str, dict[str, object]]:
    """Medians, and each choice's rate beside that of the fixed number whose median is best.

    >>> found = summary({"auto": [9.0, 9.0], "1": [10.0, 10.0], "2": [5.0, 5.0]})
    >>> found["auto"]["beside_best"], found["2"]["beside_best"]
    (0.9, 0.5)
    """
    fixed = [choice for choice in rates if choice.isdigit()]
    best = rates[max(fixed, key=lambda choice: statistics.median(rates[choice]))]
    rows: dict[str, dict[str, object]] = {}
    for choice, values in rates.items():
        ratios = sorted(value / other for value, other in zip(values, best, strict=True))
        rows[choice] = {
            "steps_a_second": statistics.median(values), "beside_best": statistics.median(ratios),
            "range": [ratios[0], ratios[-1]], "rounds": values,
        }  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each training")
    parser.add_argument("--model", choices=MODELS, default="mlp")
    parser.add_argument("--loads", nargs="+", choices=("idle", "busy", "spells"), default=["idle", "busy", "spells"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    facts = about()
    choices: list[int | str] = ["auto", "adaptive", *range(1, facts["cores"] + 1)]
    found = {
        kind: summary(measure(kind, arguments.model, choices, arguments.rounds, arguments.seconds))
        for kind in arguments.loads
    }
    print("\n" + ", ".join(f"{name} {fact}" for name, fact in facts.items()))
    print(f"{arguments.model}, medians of {arguments.rounds} rounds of {arguments.seconds:g} s")
    for kind, rows in found.items():
        print(f"\n{kind:10}{'steps/s':>10}{'of the best':>13}{'range':>18}")
        for choice, row in rows.items():
            low, high = row["range"]  # type: ignore[misc]
            print(f"{choice:10}{row['steps_a_second']:10.1f}{row['beside_best']:13.3f}{f'{low:.3f} to {high:.3f}':>18}")
    if arguments.json:
        told = {**facts, "model": arguments.model, "seconds": arguments.seconds, "loads": found}
        arguments.json.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
