"""What a trainer costs: microseconds a step of a bare loop, brim, Lightning and Accelerate, in one run.

The same tiny model over the same list of ready batches, in interleaved rounds; the table shows medians and the ratio to
the bare loop. brim runs as a user would run it, with its run folder, log and checkpoint; its peers run with logging,
checkpoints and progress bars switched off. A source of batches stamps the clock when a batch is asked for, so every
contender is timed from outside, over the same steps, after the same warm-up.

    python benchmarks/overhead.py [--device cuda] [--rounds 9] [--json out.json]
"""

import argparse
import itertools
import json
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from about import about
from torch import nn

WARM_UP, TIMED, STRETCH = 300, 1500, 50


class StampedBatches:
    """Ready batches that note the time whenever another stretch of steps is asked for.

    The time of a step is the median over stretches, so that a hiccup of a shared machine does not decide.
    """

    def __init__(self, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        self.batches = batches
        self.stamps: list[float] = []

    def __len__(self) -> int:
        return WARM_UP + TIMED + 1

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for index in range(len(self)):
            if index >= WARM_UP and (index - WARM_UP) % STRETCH == 0:
                if self.batches[0][0].is_cuda:
                    torch.cuda.synchronize()
                self.stamps.append(time.perf_counter())
            yield self.batches[index % len(self.batches)]

    def microseconds(self) -> float:
        stretches = [later - earlier for earlier, later in itertools.pairwise(self.stamps)]
        return statistics.median(stretches) / STRETCH * 1e6


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))


def make_optimizer(parameters) -> torch.optim.Optimizer:  # type: ignore[no-untyped-def]
    return torch.optim.Adam(parameters, lr=1e-3)


def run_bare(source: StampedBatches, device: str) -> None:
    model = make_model().to(device)
    optimizer = make_optimizer(model.parameters())
    loss_fn = nn.MSELoss()
    for x, y in source:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()


def run_brim(source: StampedBatches, device: str) -> None:
    import brim

    with tempfile.TemporaryDirectory() as folder:
        trainer = brim.Trainer(
            make_model(), source, loss_fn=nn.MSELoss(), optimizer=make_optimizer, device=device,
            threads=torch.get_num_threads(), run_dir=Path(folder) / "run",
        )  # fmt: skip
        trainer.fit()


def record_share(batches: list[tuple[torch.Tensor, torch.Tensor]], device: str) -> float:
    """The share of brim's step time that goes into recording: losses, metrics.jsonl, TensorBoard, progress bar.

    Timed around the one call that records; what the timing itself takes, found with a call that does nothing, is taken
    off again.
    """
    from brim.engine.run_log.step_log import StepLog

    def microseconds_in(record: Callable[..., None]) -> tuple[float, float]:
        spent: list[float] = []

        def timed(*arguments: object) -> None:
            began = time.perf_counter()
            record(*arguments)
            spent.append(time.perf_counter() - began)

        StepLog.add = timed  # type: ignore[method-assign, assignment]
        source = StampedBatches(batches)
        run_brim(source, device)
        # Stretches as long as there are steps between two logs, so that each holds one log.
        stretches = [sum(spent[i : i + STRETCH]) for i in range(WARM_UP, WARM_UP + TIMED, STRETCH)]
        return statistics.median(stretches) / STRETCH * 1e6, source.microseconds()

    add = StepLog.add
    try:
        nothing, _ = microseconds_in(lambda *_: None)
        recording, step = microseconds_in(add)
    finally:
        StepLog.add = add  # type: ignore[method-assign]
    return (recording - nothing) / step


def run_lightning(source: StampedBatches, device: str) -> None:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = make_model()
            self.loss_fn = nn.MSELoss()

        def training_step(self, batch, index):  # type: ignore[no-untyped-def]
            x, y = batch
            return self.loss_fn(self.model(x), y)

        def configure_optimizers(self):  # type: ignore[no-untyped-def]
            return make_optimizer(self.parameters())

    trainer = lightning.Trainer(
        max_epochs=1, accelerator="gpu" if device == "cuda" else "cpu", devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(), source)


def run_accelerate(source: StampedBatches, device: str) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=device == "cpu")
    model = make_model()
    model, optimizer = accelerator.prepare(model, make_optimizer(model.parameters()))
    loss_fn = nn.MSELoss()
    for x, y in source:
        x, y = x.to(accelerator.device, non_blocking=True), y.to(accelerator.device, non_blocking=True)
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        accelerator.backward(loss)
        optimizer.step()


CONTENDERS: dict[str, Callable[[StampedBatches, str], None]] = {
    "bare loop": run_bare,
    "brim": run_brim,
    "Lightning": run_lightning,
    "Accelerate": run_accelerate,
}


def make_batches(device: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return [(torch.randn(256, 64).to(device), torch.randn(256, 1).to(device)) for _ in range(16)]


def measure(batches: list[tuple[torch.Tensor, torch.Tensor]], device: str, rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for number in range(rounds + 1):  # the first round warms everything up and is thrown away
        order = list(CONTENDERS.items())
        for name, run in order[number % 4 :] + order[: number % 4]:
            source = StampedBatches(batches)
            run(source, device)
            if number:
                times[name].append(source.microseconds())
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(arguments.threads)
    facts = about("lightning", "accelerate")
    batches = make_batches(arguments.device)
    times = measure(batches, arguments.device, arguments.rounds)
    record = statistics.median(record_share(batches, arguments.device) for _ in range(3))
    # The ratio is taken within each round, so that what the machine did meanwhile cancels out.
    bare = times["bare loop"]
    print("\n" + ", ".join(f"{name} {fact}" for name, fact in facts.items()))
    print(f"tiny MLP, batch 256, Adam; median of {arguments.rounds} rounds of {TIMED} steps\n")
    print(f"{'':12}{'us a step':>10}{'ratio':>8}{'   range of the ratio':>22}")
    rows = {}
    for name, values in times.items():
        ratios = sorted(value / base for value, base in zip(values, bare, strict=True))
        rows[name] = {
            "microseconds": statistics.median(values), "ratio": statistics.median(ratios),
            "range": [ratios[0], ratios[-1]], "rounds": values,
        }  # fmt: skip
        print(f"{name:12}{statistics.median(values):10.1f}{statistics.median(ratios):8.3f}"
              f"{f'{ratios[0]:.3f} to {ratios[-1]:.3f}':>22}")  # fmt: skip
    print(f"\nrecording takes {record:.2%} of brim's step")
    if arguments.json:
        found = {**facts, "device": arguments.device, "record_share": record, "rows": rows}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
