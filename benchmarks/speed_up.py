"""The forecast of a step's time on one H200, beside the eager steps that step.py measured there.

    python benchmarks/speed_up.py [--json benchmarks/results/speed-up.json]

Needs no GPU: the forecast counts operators on fake tensors, and the measured times lie in results/step-h200.json. The
forecast is the same on every machine; it says nothing about links, which are not measured anywhere.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from about import about
from torch import Tensor, nn

from brim.hardware.peaks import peak_of
from brim.memory.forecast import make_job, make_setting
from brim.speed_up.rank_batches import RankBatches
from brim.speed_up.step_time import StepTime, step_time
from brim.workloads.recommender import BPR

MEASURED = Path(__file__).parent / "results" / "step-h200.json"
CARD = "NVIDIA H200"
USERS, ITEMS, LENGTH, FEATURES = 6040, 3706, 30, 16  # as in step.py


class Forecaster(nn.Module):
    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, hidden, layers, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.out(self.lstm(x)[0][:, -1])
        return value


class OwnLoss(nn.Module):
    """A model whose output is the loss that it computes itself."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, *batch: Tensor) -> Tensor:
        loss: Tensor = self.model.calculate_loss(list(batch))
        return loss


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False))


@dataclass(frozen=True)
class Step:
    part: str  # of step.py
    batch_size: int
    precision: str
    model: Callable[[], nn.Module]
    batch: Callable[[int], Any]
    loss: Callable[[Any], Tensor]


def series(n: int) -> Any:
    return (torch.empty(n, LENGTH, FEATURES),), {}


def pairs(n: int) -> Any:
    return (torch.zeros(n, dtype=torch.long), torch.zeros(n, dtype=torch.long), torch.zeros(n, dtype=torch.long)), {}


def tokens(n: int) -> Any:
    ids = torch.zeros(n, 512, dtype=torch.long)
    return (), {"input_ids": ids, "labels": ids}


def mean_square(output: Tensor) -> Tensor:
    return output.float().pow(2).mean()


STEPS = (
    Step("lstm", 128, "32", lambda: Forecaster(64, 2), series, mean_square),
    Step("lstm-wide", 512, "bf16", lambda: Forecaster(256, 3), series, mean_square),
    Step("large-batch", 8192, "bf16", lambda: Forecaster(256, 3), series, mean_square),
    Step("bpr", 2048, "32", lambda: OwnLoss(BPR(USERS, ITEMS, embed_dim=64)), pairs, lambda output: output),
    Step("gpt2", 8, "bf16", gpt2, tokens, lambda output: output.loss),
)


def forecast(step: Step) -> StepTime:
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=1e-3, fused=True)  # as brim builds it by name

    job = make_job(step.model, step.batch, step.loss, optimizer, step.precision)
    setting = make_setting(CARD, "2.11", False)
    peak = peak_of(setting.card)
    assert peak is not None
    return step_time(RankBatches(job, setting).work(step.batch_size), peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    facts, rows = about("transformers"), {}
    parts = json.loads(MEASURED.read_text())["parts"]
    print(f"{'ms a step':14}{'measured':>10}{'host':>10}{'GPU':>10}{'forecast':>10}")
    for step in STEPS:
        rounds = [1e3 * step.batch_size / rate for rate in parts[step.part]["rows"]["brim eager"]["rounds"]]
        made = forecast(step)
        row = {"measured_ms": statistics.median(rounds), "host_ms": 1e3 * made.host, "gpu_ms": 1e3 * made.gpu}
        rows[step.part] = {**row, "forecast_ms": 1e3 * made.seconds, "measured_rounds_ms": rounds}
        print(f"{step.part:14}" + "".join(f"{value:10.2f}" for value in list(rows[step.part].values())[:4]), flush=True)
    if arguments.json is not None:
        found = {**facts, "measured in": MEASURED.name, "card": CARD, "rows": rows}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
