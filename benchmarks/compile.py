"""Compiled training beside eager training: samples/s once it runs, and seconds in which training stands still for it.

Each measurement is a process of its own. Standing still is the sum over the steps of step time less the median eager
step. The cold run of each way has an empty Inductor cache, the warm one the cache that it left.

    python benchmarks/compile.py --json compile.json          # a GPU: GPT-2 124M, BERT-base (ragged), ResNet-50;
                                                              # a later call measures what is missing
    python benchmarks/compile.py --workloads gpt2 --ways eager auto "by hand"
    python benchmarks/compile.py --workloads bert --ways eager padded "by hand" --steps 1500   # few lengths, captured
    python benchmarks/compile.py --small                      # small ones, on the CPU, to see that it runs
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch
from about import about
from torch import nn

import brim

WAYS: dict[str, Any] = {
    "eager": False, "compile=True": True, "by blocks": {"per": "block"}, "auto": "auto", "padded": False,
    "by hand": None,
}  # fmt: skip
WORKLOADS = ("gpt2", "bert", "resnet50")
FROM_STEP = 300


def language_model(small: bool) -> tuple[nn.Module, list[Any], int]:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 3, "n_embd": 32, "n_head": 2, "vocab_size": 100} if small else {}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    size, length = (4, 32) if small else (16, 512)
    ids = [torch.randint(0, model.config.vocab_size, (size, length)) for _ in range(16)]
    return model, [{"input_ids": one, "labels": one} for one in ids], size


def ragged_classifier(small: bool) -> tuple[nn.Module, list[Any], int]:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(**(sizes if small else {})))
    size, generator = (4 if small else 32), torch.Generator().manual_seed(0)
    batches = []
    for _ in range(64):
        length = int(torch.randint(16, 33 if small else 129, (), generator=generator))
        ids = torch.randint(1, 1000, (size, length), generator=generator)
        labels = torch.randint(0, 2, (size,), generator=generator)
        batches.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels})
    return model, batches, size


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
        )  # fmt: skip
        is_same = inputs == 4 * width and stride == 1
        self.shortcut = nn.Identity() if is_same else nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.convolutions(x) + self.shortcut(x))


def picture_model(small: bool) -> tuple[nn.Module, list[Any], int]:
    """ResNet-50; torchvision's own is not needed for it."""
    depths, width, size, side = ((2, 2), 4, 4, 32) if small else ((3, 4, 6, 3), 64, 64, 224)
    stem = nn.Sequential(
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    )
    stages, inputs = [], width
    for number, depth in enumerate(depths):
        wide = width << number
        strides = [1 if number == 0 else 2] + [1] * (depth - 1)
        stages.append(
            nn.Sequential(*[Bottleneck(inputs if not k else 4 * wide, wide, s) for k, s in enumerate(strides)])
        )
        inputs = 4 * wide
    model = nn.Sequential(stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))
    return model, [(torch.randn(size, 3, side, side), torch.randint(0, 10, (size,))) for _ in range(4)], size


MAKERS = {"gpt2": language_model, "bert": ragged_classifier, "resnet50": picture_model}


class Moments(brim.Callback):
    """When each step ended, the device waited for."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, trainer: Any, step: int, loss: torch.Tensor) -> None:
        self.ends.append(moment())


def moment() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def by_hand(model: nn.Module, batches: list[Any], steps: int, device: str) -> list[float]:
    """A bare loop around ``torch.compile(model)``."""
    model.to(device).train()
    compiled, ends = torch.compile(model), []
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=device == "cuda")
    for step in range(steps):
        batch = batches[step % len(batches)]
        with torch.autocast(device, torch.bfloat16):
            if isinstance(batch, dict):
                loss = compiled(**{name: tensor.to(device) for name, tensor in batch.items()}).loss
            else:
                loss = nn.functional.cross_entropy(compiled(batch[0].to(device)), batch[1].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ends.append(moment())
    return ends


def measured(workload: str, way: str, steps: int, small: bool) -> dict[str, Any]:
    """One training, in this process."""
    torch.manual_seed(0)
    model, batches, size = MAKERS[workload](small)
    device = "cpu" if small else "cuda"
    began, decision = moment(), None
    if way == "by hand":
        ends = by_hand(model, batches, steps, device)
    else:
        moments = Moments()
        with tempfile.TemporaryDirectory() as folder:
            brim.Trainer(
                model, batches, loss_fn=nn.CrossEntropyLoss() if workload == "resnet50" else None, device=device,
                optimizer={"name": "AdamW", "fused": not small}, lr=1e-4, max_steps=steps, precision="bf16-mixed",
                compile=WAYS[way], callbacks=[moments],
                capture="padded" if way == "padded" else "auto", run_dir=Path(folder) / "run", checkpoint_every=steps,
            ).fit()  # fmt: skip
            plan = Path(folder) / "run" / "plan.json"
            decision = json.loads(plan.read_text())["choices"].get("compile") if plan.exists() else None
        ends = moments.ends
    times = [end - before for before, end in zip([began, *ends], ends, strict=False)]
    late = times[min(FROM_STEP, steps // 2) :]
    return {"samples_per_second": size * len(late) / sum(late), "step_seconds": times, "decision": decision}


def in_child(workload: str, way: str, steps: int, small: bool, cache: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", workload, way, "--steps", str(steps)] + ["--small"] * small
    ended = subprocess.run(
        command, env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}, stdout=subprocess.PIPE, text=True, check=False
    )
    lines = ended.stdout.strip().splitlines()
    return json.loads(lines[-1]) if ended.returncode == 0 and lines else {"failed": ended.returncode}


def compared(workload: str, way: str, steps: int, small: bool) -> dict[str, Any]:
    """One way, with an empty cache and with the one that it left."""
    with tempfile.TemporaryDirectory() as cache:
        return {told: in_child(workload, way, steps, small, cache) for told in ("cold", "warm")}


def stand_still(found: dict[str, Any]) -> None:
    """Note for how long training stood still, beside the eager step of the same workload."""
    eager = median(found.get("eager", {}).get("warm", {}).get("step_seconds", [0.0]))
    for one in [one for ways in found.values() for one in ways.values()]:
        one["standing_still"] = sum(seconds - eager for seconds in one.get("step_seconds", []) if seconds > eager)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the results are written")
    parser.add_argument("--small", action="store_true", help="small models on the CPU")
    parser.add_argument("--steps", type=int, default=None, help="of each training; 600, or 40 small ones")
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS, choices=WORKLOADS)
    parser.add_argument(
        "--ways", nargs="+", default=list(WAYS), choices=list(WAYS), help="'eager' is what others wait for"
    )
    parser.add_argument("--one", nargs=2, metavar=("WORKLOAD", "WAY"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    steps = asked.steps or (40 if asked.small else 600)
    if asked.one:
        print(json.dumps(measured(*asked.one, steps, asked.small)))
        return
    found = json.loads(asked.json.read_text())["workloads"] if asked.json and asked.json.exists() else {}
    for workload, way in product(asked.workloads, asked.ways):
        ways = found.setdefault(workload, {})
        if way in ways:
            continue
        ways[way] = compared(workload, way, steps, asked.small)
        stand_still(ways)
        for cache, one in ways[way].items():
            print(workload, way, cache, json.dumps({**one, "step_seconds": None}), flush=True)
        if asked.json:  # after each, so that a run that is ended early leaves what it had
            told = {"about": about("transformers"), "steps": steps, "workloads": found}
            asked.json.write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
