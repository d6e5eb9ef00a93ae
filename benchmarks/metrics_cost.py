"""What ``metrics=`` costs an evaluation: ResNet-50 with a name, a function, objects of torchmetrics, and without any.

The batches lie on the device, so that nothing but the model and the metrics takes time. The rounds take turns, and a
ratio is that of one round.

    python benchmarks/metrics_cost.py [--batches 60] [--batch 64] [--rounds 7] [--small] [--json out.json]

``--small``: a small convolutional network instead, to see on a CPU that the script runs.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from about import about
from torch import Tensor, nn
from torch.nn import functional as F

import brim

CLASSES = 1000


def network(small: bool) -> nn.Module:
    if small:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES)
        )
    from torchvision.models import resnet50

    return resnet50()


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def top_5(outputs: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    return (outputs.topk(5).indices == batch[1][:, None]).any(1).float().mean()


def torchmetrics_objects(device: torch.device) -> Any:
    from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

    return {"accuracy": MulticlassAccuracy(CLASSES).to(device), "f1": MulticlassF1Score(CLASSES).to(device)}


def seconds_of(evaluate: Callable[[], Any], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    evaluate()  # its numbers are read at the end, so the device is done
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    side = 32 if options.small else 224
    torch.manual_seed(0)
    images = torch.randn(options.batch, 3, side, side, device=device)
    data = [(images, torch.randint(CLASSES, (options.batch,), device=device)) for _ in range(options.batches)]
    kinds: dict[str, Any] = {
        "none": None,
        "a name": "accuracy",
        "a function": {"top5": top_5},
        "two of torchmetrics": torchmetrics_objects(device),
    }
    trainer = brim.Trainer(network(options.small), data, loss_fn=loss, device=str(device), precision="bf16-mixed")

    def evaluation(metrics: Any) -> Callable[[], dict[str, float]]:
        return lambda: trainer.evaluate(data, metrics=metrics)

    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(options.rounds + 1):
        for kind, metrics in kinds.items():
            seconds = seconds_of(evaluation(metrics), device)
            if number:  # the first one warms up
                taken[kind].append(seconds)
    rows = {}
    for kind, seconds in taken.items():
        ratios = [one / plain for one, plain in zip(seconds, taken["none"], strict=True)]
        rows[kind] = {
            "milliseconds_a_batch": round(statistics.median(seconds) / options.batches * 1e3, 4),
            "ratio": round(statistics.median(ratios), 4),
            "range": [round(min(ratios), 4), round(max(ratios), 4)],
        }
        low, high = rows[kind]["range"]
        print(
            f"{kind:<22} {rows[kind]['milliseconds_a_batch']:8.3f} ms a batch, {rows[kind]['ratio']:.3f} of the "
            f"evaluation without ({low:.3f}-{high:.3f})"
        )
    if options.json is not None:
        found = {**about("torchmetrics", "torchvision"), **vars(options), "json": None, "kinds": rows}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
