"""A loop of one's own with five lines of brim beside the same without: microseconds a step, in one run.

``examples/plain_loop_before.py`` and ``examples/plain_loop.py`` as they stand, over the same batches in host memory, in
interleaved rounds; the table shows medians and the ratio to the loop without brim. The source of batches stamps the
clock, so both are timed from outside, over the same steps, after the same warm-up; on a GPU it waits for the device at
each stamp.

    python benchmarks/plain_loop.py [--device cuda] [--rounds 7] [--steps 600] [--json out.json]
"""

import argparse
import importlib.util
import itertools
import json
import logging
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from about import about

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
LOOPS = {"plain loop": "plain_loop_before", "with brim": "plain_loop"}
STRETCH = 25
Batches = list[tuple[torch.Tensor, torch.Tensor]]


def example(name: str) -> Any:
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stamped(batches: Batches, steps: int, warm_up: int, device: str, stamps: list[float]) -> Iterator[Any]:
    """So many batches; after the warm-up the clock is read before every stretch of them."""
    for number in range(warm_up + steps + 1):
        if number >= warm_up and (number - warm_up) % STRETCH == 0:
            if device.startswith("cuda"):
                torch.cuda.synchronize()
            stamps.append(time.perf_counter())
        yield batches[number % len(batches)]


def microseconds(loop: Any, batches: Batches, steps: int, warm_up: int, device: str) -> float:
    """Of one step, the median over stretches: a hiccup of a shared machine does not decide."""
    stamps: list[float] = []
    torch.manual_seed(0)
    loop.train(loop.Forecaster(), stamped(batches, steps, warm_up, device, stamps), device, epochs=1)
    stretches = [later - earlier for earlier, later in itertools.pairwise(stamps)]
    return statistics.median(stretches) / STRETCH * 1e6


def measure(batches: Batches, steps: int, warm_up: int, device: str, rounds: int) -> dict[str, list[float]]:
    """Microseconds by loop and round, in turns; the first round warms everything up and is thrown away."""
    loops = {name: example(file) for name, file in LOOPS.items()}
    times: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(rounds + 1):
        order = list(loops.items())
        for name, loop in order[number % 2 :] + order[: number % 2]:
            found = microseconds(loop, batches, steps, warm_up, device)
            if number:
                times[name].append(found)
    return times


def rows_of(times: dict[str, list[float]]) -> dict[str, dict[str, Any]]:
    """Medians, and the ratio within each round, so that what the machine did meanwhile cancels out."""
    rows = {}
    for name, values in times.items():
        ratios = sorted(value / base for value, base in zip(values, times["plain loop"], strict=True))
        rows[name] = {
            "microseconds": statistics.median(values), "ratio": statistics.median(ratios),
            "range": [ratios[0], ratios[-1]], "rounds": values,
        }  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--warm-up", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(arguments.threads)
    facts = about()
    torch.manual_seed(0)
    batches = [(torch.randn(128, 30, 8), torch.randn(128, 1)) for _ in range(16)]
    times = measure(batches, arguments.steps, arguments.warm_up, arguments.device, arguments.rounds)
    rows = rows_of(times)
    print("\n" + ", ".join(f"{name} {fact}" for name, fact in facts.items()))
    print(f"LSTM 64 x 2, batch 128, Adam, on {arguments.device}; {arguments.rounds} rounds of {arguments.steps} steps")
    for name, row in rows.items():
        low, high = row["range"]
        print(f"{name:12}{row['microseconds']:12,.1f} us a step{row['ratio']:8.3f}  ({low:.3f} to {high:.3f})")
    if arguments.json:
        found = {**facts, "device": arguments.device, "steps": arguments.steps, "rows": rows}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
