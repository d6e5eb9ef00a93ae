"""Trainings with everything automatic beside the same ones with every fixed choice: how wrong were the decisions?

Six workloads, each for a short and for a long run. A figure is the wall time of ``fit()``, compiling, capturing and
trials included, in a process of its own with an Inductor cache of its own. "automatic" is ``compile="auto"`` and
``capture="auto"``; its ratio is to the best of the fixed choices, which is only known afterwards.

    python benchmarks/decisions.py --json decisions.json                       # a GPU; goes on where the file ends
    python benchmarks/decisions.py --workloads mlp lstm --lengths 100 --json decisions.json
    python benchmarks/decisions.py --small --json decisions.json               # on the CPU, to see that it runs
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from about import about
from compile import MAKERS
from torch import Tensor, nn

import brim

AUTOMATIC = "automatic"
WAYS: dict[str, dict[str, Any]] = {
    "eager": {"compile": False, "capture": "off"},
    "captured": {"compile": False, "capture": "require"},
    "compiled": {"compile": {"per": "block"}, "capture": "off"},
    "both": {"compile": {"per": "block"}, "capture": "require"},
    AUTOMATIC: {"compile": "auto", "capture": "auto"},
}
WORKLOADS = ("gpt2", "bert", "resnet50", "mlp", "lstm", "recommender")
LENGTHS = (100, 1000)
ALLOWED = 1.05  # times the best fixed choice


class Sequence(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(16, width, 2, batch_first=True), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.lstm(x)[0]
        return self.head(outputs[:, -1])  # type: ignore[no-any-return]


class Recommender(nn.Module):
    """Two towers of ids, their product and a small network."""

    def __init__(self, ids: int, width: int) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(ids, width), nn.Embedding(ids, width)
        self.network = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1))

    def forward(self, pairs: Tensor) -> Tensor:
        both = self.users(pairs[:, 0]), self.items(pairs[:, 1])
        return self.network(torch.cat(both, 1)) + (both[0] * both[1]).sum(1, keepdim=True)  # type: ignore[no-any-return]


def small_network(small: bool) -> tuple[nn.Module, list[Any], int]:
    width, size = (16, 8) if small else (256, 256)
    layers = [layer for _ in range(6) for layer in (nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1))]
    return nn.Sequential(*layers, nn.Linear(width, 1)), regression(lambda: torch.randn(size, width), size), size


def recurrent(small: bool) -> tuple[nn.Module, list[Any], int]:
    width, size, length = (8, 4, 6) if small else (256, 128, 96)
    return Sequence(width), regression(lambda: torch.randn(size, length, 16), size), size


def recommender(small: bool) -> tuple[nn.Module, list[Any], int]:
    ids, width, size = (50, 4, 16) if small else (100_000, 64, 2048)
    return Recommender(ids, width), regression(lambda: torch.randint(0, ids, (size, 2)), size), size


def regression(inputs: Any, size: int, batches: int = 16) -> list[Any]:
    return [(inputs(), torch.randn(size, 1)) for _ in range(batches)]


MADE = {**MAKERS, "mlp": small_network, "lstm": recurrent, "recommender": recommender}


def measured(workload: str, way: str, steps: int, small: bool) -> dict[str, Any]:
    """One training, in this process."""
    torch.manual_seed(0)
    model, batches, _ = MADE[workload](small)
    losses = {"gpt2": None, "bert": None, "resnet50": nn.CrossEntropyLoss()}
    with tempfile.TemporaryDirectory() as folder:
        trainer = brim.Trainer(
            model, batches, loss_fn=losses.get(workload, nn.MSELoss()), device="cpu" if small else "cuda",
            optimizer={"name": "AdamW", "fused": not small}, lr=1e-4, max_steps=steps, epochs=steps,
            precision="bf16-mixed", run_dir=Path(folder) / "run", **WAYS[way],
        )  # fmt: skip
        began = time.perf_counter()
        trainer.fit()
        seconds = time.perf_counter() - began
        plan = Path(folder) / "run" / "plan.json"
        choices = json.loads(plan.read_text())["choices"] if plan.exists() else None
    return {"seconds": seconds, "choices": choices}


def in_child(workload: str, way: str, steps: int, small: bool) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", workload, way, str(steps)] + ["--small"] * small
    with tempfile.TemporaryDirectory() as cache:
        known = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "BRIM_CACHE": cache}
        ended = subprocess.run(command, env=known, stdout=subprocess.PIPE, text=True, check=False)
    lines = ended.stdout.strip().splitlines()
    return json.loads(lines[-1]) if ended.returncode == 0 and lines else {"failed": ended.returncode}


def judged(found: dict[str, Any]) -> dict[str, Any]:
    """The automatic training beside the best of the fixed ones."""
    seconds = {way: one["seconds"] for way, one in found.items() if way in WAYS and "seconds" in one}
    fixed = {way: taken for way, taken in seconds.items() if way != AUTOMATIC}
    if not fixed or AUTOMATIC not in seconds:
        return {"best": None, "ratio": None}
    best = min(fixed, key=lambda way: fixed[way])
    return {"best": best, "ratio": seconds[AUTOMATIC] / fixed[best]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the results are written, and what is there is not done again")
    parser.add_argument("--small", action="store_true", help="small models on the CPU")
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS, choices=WORKLOADS)
    parser.add_argument("--lengths", nargs="+", type=int, default=None, help="in steps; 100 and 1000, or 8 and 24")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--one", nargs=3, metavar=("WORKLOAD", "WAY", "STEPS"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        workload, way, steps = asked.one
        print(json.dumps(measured(workload, way, int(steps), asked.small)))
        return
    known = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else {}
    found: dict[str, Any] = known.get("trainings", {})
    for workload in asked.workloads:
        for steps in asked.lengths or ((8, 24) if asked.small else LENGTHS):
            one = found.setdefault(f"{workload}, {steps} steps", {})
            for way in asked.ways:
                if "seconds" not in one.get(way, {}):
                    one[way] = in_child(workload, way, steps, asked.small)
                    print(workload, steps, way, json.dumps(one[way]), flush=True)
                    if asked.json:
                        write(asked.json, found)
            one.update(judged(one))
            print(workload, steps, "best:", one["best"], "automatic to best:", one["ratio"], flush=True)
    if asked.json:
        write(asked.json, found)


def write(path: Path, found: dict[str, Any]) -> None:
    ratios = [one["ratio"] for one in found.values() if one.get("ratio")]
    told = {"right": sum(ratio <= ALLOWED for ratio in ratios), "of": len(ratios), "worst": max(ratios, default=None)}
    path.write_text(json.dumps({"about": about("transformers"), **told, "trainings": found}, indent=1))


if __name__ == "__main__":
    main()
