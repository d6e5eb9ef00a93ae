"""What ``metrics=`` costs an evaluation: ResNet-50 with a name, a function, objects of torchmetrics, and without any.

The batches lie on the device, so that nothing but the model and the metrics takes time. Eager passes are calls of
``trainer.evaluate`` (a call that captures would count its graphs for one way or another); captured ones are those of a
run after its first two, whose graphs are there by then. The rounds take turns, and a ratio is that of one round.

    python benchmarks/metrics_cost.py [--batches 60] [--batch 64] [--rounds 7] [--ways eager captured] [--small]
                                      [--json out.json]

``--small``: a small convolutional network instead, to see on a CPU that the script runs.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from about import about
from torch import Tensor, nn
from torch.nn import functional as F

import brim

CLASSES = 1000
WAYS = ("eager", "captured")
WARM_UP = 2  # evaluations of a run: the first batches of a shape are eager
Rounds = dict[str, list[float]]


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


def now(device: torch.device) -> float:
    """The time, when the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def trainer_of(options: argparse.Namespace, data: Any, device: torch.device, **more: Any) -> brim.Trainer:
    torch.manual_seed(0)
    return brim.Trainer(
        network(options.small), data[:1], loss_fn=loss, device=str(device), precision="bf16-mixed", **more
    )


def eager_rounds(options: argparse.Namespace, data: Any, kinds: dict[str, Any], device: torch.device) -> Rounds:
    """Seconds of single evaluations, by kind; the first one of each warms up."""
    trainer = trainer_of(options, data, device, capture="off")
    taken: Rounds = {kind: [] for kind in kinds}
    for number in range(options.rounds + 1):
        for kind, metrics in kinds.items():
            began = now(device)
            trainer.evaluate(data, metrics=metrics)  # its numbers are read at the end, so the device is done
            if number:
                taken[kind].append(time.perf_counter() - began)
    return taken


class Evaluations(brim.Callback):
    """Seconds of each evaluation of a run."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.began, self.seconds = device, 0.0, list[float]()

    def on_evaluate_start(self, trainer: brim.Trainer) -> None:
        self.began = now(self.device)

    def on_evaluate(self, trainer: brim.Trainer, metrics: dict[str, float]) -> None:
        self.seconds.append(now(self.device) - self.began)


def captured_rounds(options: argparse.Namespace, data: Any, kinds: dict[str, Any], device: torch.device) -> Rounds:
    """Medians of a run's evaluations, by kind; a run for each kind and round."""
    taken: Rounds = {kind: [] for kind in kinds}
    for _ in range(options.rounds):
        for kind, metrics in kinds.items():
            clock = Evaluations(device)
            with tempfile.TemporaryDirectory() as folder:
                trainer_of(
                    options, data, device, eval_data=data, metrics=metrics, epochs=WARM_UP + 3, callbacks=[clock],
                    run_dir=Path(folder) / "run", restore_best=False,
                ).fit()  # fmt: skip
            taken[kind].append(statistics.median(clock.seconds[WARM_UP:]))
    return taken


def rows_of(taken: Rounds, batches: int) -> dict[str, dict[str, Any]]:
    """
    >>> rows_of({"none": [1.0, 1.0], "a name": [1.5, 2.0]}, 10)["a name"]["ratio"]
    1.75
    """
    rows = {}
    for kind, seconds in taken.items():
        ratios = [one / plain for one, plain in zip(seconds, taken["none"], strict=True)]
        rows[kind] = {
            "milliseconds_a_batch": round(statistics.median(seconds) / batches * 1e3, 4),
            "ratio": round(statistics.median(ratios), 4),
            "range": [round(min(ratios), 4), round(max(ratios), 4)],
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
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
    found: dict[str, Any] = {**about("torchmetrics", "torchvision"), **vars(options), "json": None, "ways": {}}
    for way in options.ways:
        rows = rows_of({"eager": eager_rounds, "captured": captured_rounds}[way](options, data, kinds, device),
                       options.batches)  # fmt: skip
        for kind, row in rows.items():
            print(
                f"{way:9} {kind:<22} {row['milliseconds_a_batch']:8.3f} ms a batch, {row['ratio']:.3f} of the "
                f"evaluation without ({row['range'][0]:.3f}-{row['range'][1]:.3f})", flush=True
            )  # fmt: skip
        found["ways"][way] = rows
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
