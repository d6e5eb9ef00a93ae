"""The forecaster: how good its forecasts are beside naive ones, and how long training takes beside Lightning.

``quality`` trains on ETTh1 (96 steps to 96; 8,640 / 2,880 / 2,880 rows, scaled by the training rows, 7 channels,
windows one step apart, the look-back of a test window reaching over the border, as the published protocol has it), on
ETTh2 with the same settings, and on the exchange rates (90 to 30), some seeds each. The weights are those of the best
epoch by the validation loss; the test split is judged once, at the end. Beside each stand the naive forecasts and the
same model without the LSTM.

``defaults`` runs ``brim train workload=forecaster`` on the same data sets, with nothing set but the file, both lengths
and the split, and keeps the table of each run: its first row is what the run forecasts.

``speed`` trains the same LSTM on the same windows with brim and with a plain Lightning module (a Dataset that slices
windows, a DataLoader, Trainer.fit with validation and a checkpoint after each epoch), each in a process of its own, in
turns (ETTh1, 96 steps to 24, batches of 128, single steps of all channels), and tells after how many seconds of ``fit``
each has reached the validation loss that all of them reach. Nothing is imported within these seconds: torch's
compiler, which the first optimizer of a process imports, is there before, as Lightning imports it with itself. The rate
is that of the published protocols of these data sets, with which the best epoch comes late.

    python benchmarks/forecaster.py quality --data FOLDER [--seeds 3] [--only NAME] [--json out.json]
    python benchmarks/forecaster.py defaults --data FOLDER [--seeds 3] [--only NAME] [--json out.json]
    python benchmarks/forecaster.py speed --data FOLDER [--rounds 3] [--device cuda] [--json out.json]

FOLDER holds ``ett/ETTh1.csv``, ``ett/ETTh2.csv`` and ``exchange_rate/exchange_rate.txt``. Where ``out.json`` exists,
the other parts stay.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from about import about
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import brim
from brim.config import load_config
from brim.config.workload import open_workload
from brim.workloads.forecaster import LSTMForecaster, SeriesDataset
from brim.workloads.forecaster.scores import forecast_metrics, naive_rows

CASES: dict[str, dict[str, Any]] = {
    "ETTh1 96 -> 96": {
        "file": "ett/ETTh1.csv",
        "data": {"lookback": 96, "horizon": 96, "split": (8640, 2880, 2880)},
        "model": {"hidden": 128, "layers": 1, "segment": 24, "dropout": 0.3, "linear": False},
        "bars": {"mse": 0.375, "mae": 0.390},
    },
    "ETTh2 96 -> 96": {  # with the settings that were tried out on ETTh1: nothing is chosen on this one
        "file": "ett/ETTh2.csv",
        "data": {"lookback": 96, "horizon": 96, "split": (8640, 2880, 2880)},
        "model": {"hidden": 128, "layers": 1, "segment": 24, "dropout": 0.3, "linear": False},
        "beside": ("linear", 1.0),
    },
    "exchange 90 -> 30": {
        "file": "exchange_rate/exchange_rate.txt",
        "data": {"lookback": 90, "horizon": 30, "split": (0.7, 0.1, 0.2)},
        "model": {"hidden": 64, "layers": 1, "segment": 22, "dropout": 0.3, "linear": False},
        "beside": ("repeat last", 1.02),
    },
}
TRAINING = {"lr": 1e-3, "epochs": 15, "patience": 3}
BATCH = 256
SPEED_CASES = {"64 x 2": {"hidden": 64, "layers": 2}, "256 x 3": {"hidden": 256, "layers": 3}}
SPEED_BATCH, SPEED_LR, SPEED_EPOCHS = 128, 1e-4, {"cuda": 40, "cpu": 4}


def quality(folder: Path, seeds: int, device: str, names: list[str]) -> dict[str, Any]:
    """The rows of each data set: the model and the same without the LSTM by seed, and the naive ones."""
    found = {}
    for name, case in CASES.items():
        if first_word(name) not in names:
            continue
        dataset = SeriesDataset(folder / case["file"], **case["data"])
        print(f"{name}: {dataset!r}", flush=True)
        rows: dict[str, Any] = {"naive": naive_rows(dataset), "LSTM": [], "without the LSTM": []}
        for seed in range(seeds):
            for row, layers in (("LSTM", case["model"]["layers"]), ("without the LSTM", 0)):
                rows[row].append(trained(dataset, {**case["model"], "layers": layers}, seed, device))
                print(f"  {row}, seed {seed}: {shown(rows[row][-1])}", flush=True)
        found[name] = {**rows, "settings": {**case["data"], **case["model"], **TRAINING, "batch": BATCH}}
        found[name]["bars"] = bars(case, rows)
        print_rows(name, found[name])
    return found


def first_word(name: str) -> str:
    return name.partition(" ")[0]


def trained(dataset: SeriesDataset, settings: dict[str, Any], seed: int, device: str) -> dict[str, float]:
    """Test errors of the weights that are best on validation, and that validation loss."""
    torch.manual_seed(seed)
    model = LSTMForecaster.for_dataset(dataset, **settings)
    seen: list[float] = []

    class Watch(brim.Callback):
        def on_evaluate(self, trainer: brim.Trainer, metrics: dict[str, float]) -> None:
            seen.append(metrics["loss"])

    with tempfile.TemporaryDirectory() as run:
        loaders = [
            brim.Loader(dataset.get_split_data(split), BATCH, shuffle=split == "train")
            for split in ("train", "validation", "test")
        ]
        began = time.perf_counter()
        result = brim.Trainer(
            model, *loaders, seed=seed, device=device, metrics=forecast_metrics(model), monitor="loss", loggers=False,
            run_dir=Path(run) / "run", callbacks=[Watch()], **TRAINING,
        ).fit()  # fmt: skip
        seconds = time.perf_counter() - began
    best = min(seen)
    return {
        "mse": result.metrics["mse"], "mae": result.metrics["mae"], "validation": best, "epoch": seen.index(best) + 1,
        "epochs": len(seen), "seconds": round(seconds, 1),
    }  # fmt: skip


def bars(case: dict[str, Any], rows: dict[str, Any]) -> list[dict[str, Any]]:
    """What was asked for, and whether every seed has it."""
    if "bars" in case:
        limits = case["bars"]
    else:
        naive, times = case["beside"]
        limits = {"mse": rows["naive"][naive]["mse"] * times}
    made = []
    for metric, limit in limits.items():
        worst = max(row[metric] for row in rows["LSTM"])
        made.append({"what": f"{metric} of every seed", "limit": limit, "value": worst, "met": worst <= limit})
    return made


def shown(row: dict[str, float]) -> str:
    course = f"best of {row['epochs']} epochs: {row['epoch']}, {row['seconds']} s"
    return f"mse {row['mse']:.4f} mae {row['mae']:.4f} ({course})"


def print_rows(name: str, found: dict[str, Any]) -> None:
    print(f"\n{name:<32}{'mse':>8}{'mae':>8}")
    for row in ("LSTM", "without the LSTM"):
        for seed, values in enumerate(found[row]):
            print(f"{f'{row}, seed {seed}':<32}{values['mse']:8.4f}{values['mae']:8.4f}")
    for row, values in found["naive"].items():
        print(f"{row:<32}{values['mse']:8.4f}{values['mae']:8.4f}")
    for bar in found["bars"]:
        print(f"{'met' if bar['met'] else 'MISSED'}: {bar['what']} {bar['value']:.4f}, at most {bar['limit']:.4f}\n")


# What a user gets who sets nothing


def defaults(folder: Path, seeds: int, device: str, names: list[str]) -> dict[str, Any]:
    """The tables of runs with the defaults, by seed, and how far their forecasts are from repeating the last value."""
    found = {}
    for name, case in CASES.items():
        if first_word(name) not in names:
            continue
        tables = [table_of_run(folder, case, seed, device) for seed in range(seeds)]
        forecast = [next(iter(table.values())) for table in tables]
        times = [row["mse"] / table["repeat last"]["mse"] for row, table in zip(forecast, tables, strict=True)]
        found[name] = {"tables": tables, "times_repeat_last": times}
        print(f"{name}: mse of what is forecast is {', '.join(f'{one:.4f}' for one in times)} times repeat last's")
    return found


def table_of_run(folder: Path, case: dict[str, Any], seed: int, device: str) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as run:
        config = load_config(None, [
            "workload=forecaster", "without_lstm=false", "trainer.loggers=false", f"data.path={folder / case['file']}",
            f"data.lookback={case['data']['lookback']}", f"data.horizon={case['data']['horizon']}",
            f"data.split={list(case['data']['split'])}", f"trainer.seed={seed}", f"trainer.device={device}",
            f"trainer.run_dir={run}/run",
        ])  # fmt: skip
        table = open_workload(config).run().table
    print(f"seed {seed}: " + ", ".join(f"{row} {errors['mse']:.4f}" for row, errors in table.items()), flush=True)
    return table


# Speed


class Slices(Dataset[tuple[Tensor, Tensor]]):
    """Windows as most people write them: a slice of the series for each index."""

    def __init__(self, values: Tensor, starts: Tensor, lookback: int, horizon: int) -> None:
        self.values, self.starts, self.lookback, self.horizon = values, starts.tolist(), lookback, horizon

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        first = self.starts[index]
        middle = first + self.lookback
        return self.values[first:middle], self.values[middle : middle + self.horizon]


def speed_data(folder: Path) -> SeriesDataset:
    return SeriesDataset(folder / "ett/ETTh1.csv", lookback=96, horizon=24, split=(8640, 2880, 2880))


def with_brim(dataset: SeriesDataset, model: LSTMForecaster, device: str, run: Path) -> list[tuple[float, float]]:
    course: list[tuple[float, float]] = []

    class Watch(brim.Callback):
        def on_evaluate(self, trainer: brim.Trainer, metrics: dict[str, float]) -> None:
            course.append((time.perf_counter() - began, metrics["loss"]))

    loaders = [
        brim.Loader(dataset.get_split_data(split), SPEED_BATCH, shuffle=split == "train")
        for split in ("train", "validation")
    ]
    trainer = brim.Trainer(
        model,
        *loaders,
        device=device,
        epochs=SPEED_EPOCHS[device],
        lr=SPEED_LR,
        run_dir=run / "run",
        callbacks=[Watch()],
    )
    began = time.perf_counter()
    trainer.fit()
    return course


def with_lightning(dataset: SeriesDataset, model: LSTMForecaster, device: str, run: Path) -> list[tuple[float, float]]:
    import lightning

    course: list[tuple[float, float]] = []

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, index: int) -> Tensor:
            loss = self.model.calculate_loss(batch).mean
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", self.model.calculate_loss(batch).mean, batch_size=len(batch[0]))

        def on_validation_epoch_end(self) -> None:
            if not self.trainer.sanity_checking:
                course.append((time.perf_counter() - began, float(self.trainer.callback_metrics["val_loss"])))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=SPEED_LR)

    workers = 4 if device == "cuda" else 0
    loaders = [
        DataLoader(
            Slices(dataset.values, dataset.starts(split), dataset.lookback, dataset.horizon), SPEED_BATCH,
            shuffle=split == "train", num_workers=workers, pin_memory=device == "cuda", persistent_workers=workers > 0,
        )
        for split in ("train", "validation")
    ]  # fmt: skip
    best = lightning.pytorch.callbacks.ModelCheckpoint(monitor="val_loss")
    trainer = lightning.Trainer(
        max_epochs=SPEED_EPOCHS[device], accelerator="gpu" if device == "cuda" else "cpu", devices=1,
        default_root_dir=run, callbacks=[best], enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    began = time.perf_counter()
    trainer.fit(Module(), *loaders)
    return course


TRAINERS: dict[str, Callable[..., list[tuple[float, float]]]] = {"brim": with_brim, "Lightning": with_lightning}


def child(folder: Path, trainer: str, case: str, device: str, seed: int) -> None:
    """One training: (seconds, validation loss) after each epoch, as the last line."""
    importlib.import_module("torch._dynamo")
    dataset = speed_data(folder)
    torch.manual_seed(seed)
    model = LSTMForecaster.for_dataset(dataset, segment=None, linear=False, **SPEED_CASES[case])
    with tempfile.TemporaryDirectory() as run:
        course = TRAINERS[trainer](dataset, model, device, Path(run))
    print(json.dumps(course))


def speed(folder: Path, rounds: int, device: str, cases: list[str]) -> dict[str, Any]:
    """The courses of both trainers, taken in turns."""
    found: dict[str, Any] = {}
    for case in cases:
        courses: dict[str, list[Any]] = {name: [] for name in TRAINERS}
        for number in range(rounds):
            order = list(TRAINERS) if number % 2 == 0 else list(reversed(TRAINERS))
            for name in order:
                courses[name].append(in_own_process(folder, name, case, device, number))
                print(f"{case}, round {number + 1}, {name}: {courses[name][-1][-1]}", flush=True)
        found[case] = compared(courses)
        print(f"{case}: validation loss {found[case]['target']:.4f} after " + ", ".join(
            f"{name} {seconds:.2f} s" for name, seconds in found[case]["seconds"].items()
        ) + f": {found[case]['times']:.2f} times as fast")  # fmt: skip
    return found


def in_own_process(folder: Path, trainer: str, case: str, device: str, seed: int) -> list[list[float]]:
    command = [sys.executable, __file__, "child", "--data", str(folder), "--trainer", trainer, "--case", case,
               "--device", device, "--seeds", str(seed)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{trainer} failed:\n{done.stderr[-3000:]}")
    course: list[list[float]] = json.loads(done.stdout.splitlines()[-1])
    return course


def compared(courses: dict[str, list[Any]]) -> dict[str, Any]:
    """Seconds to the validation loss that every one of these trainings reaches, the median over rounds."""
    target = max(min(loss for _, loss in course) for rounds in courses.values() for course in rounds)
    seconds = {
        name: statistics.median(next(at for at, loss in course if loss <= target) for course in rounds)
        for name, rounds in courses.items()
    }
    epoch = {
        name: statistics.median((course[-1][0] - course[0][0]) / (len(course) - 1) for course in rounds)
        for name, rounds in courses.items()
    }
    return {
        "target": target, "seconds": seconds, "times": seconds["Lightning"] / seconds["brim"], "epoch": epoch,
        "epoch_times": epoch["Lightning"] / epoch["brim"], "courses": courses,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("quality", "defaults", "speed", "child"))
    parser.add_argument("--data", type=Path, default=os.environ.get("BRIM_TEST_DATA"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    here = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=list(SPEED_EPOCHS), default=here)
    data_sets = [first_word(name) for name in CASES]
    parser.add_argument("--only", action="append", choices=data_sets, help="of quality and defaults: this data set")
    parser.add_argument("--case", action="append", choices=list(SPEED_CASES))
    parser.add_argument("--trainer", choices=list(TRAINERS), default="brim")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.data is None:
        raise SystemExit("name the folder of the data with --data, or by BRIM_TEST_DATA")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    folder = Path(options.data)
    if options.part == "child":
        child(folder, options.trainer, options.case[0], options.device, options.seeds)
        return
    if options.part == "quality":
        found = quality(folder, options.seeds, options.device, options.only or data_sets)
    elif options.part == "defaults":
        found = defaults(folder, options.seeds, options.device, options.only or data_sets)
    else:
        cases = (
            list(SPEED_CASES) if options.device == "cuda" else list(SPEED_CASES)[:1]
        )  # a CPU takes too long for more
        found = speed(folder, options.rounds, options.device, options.case or cases)
    if options.json is not None:
        before = json.loads(options.json.read_text()) if options.json.exists() else {}
        made = {**before, options.part: {"about": about("lightning", "numpy"), **found}}
        options.json.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
