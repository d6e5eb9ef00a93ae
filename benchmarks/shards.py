"""The classifier on tar shards beside webdataset and Lightning, decoding included: samples a second, as ratios.

    python benchmarks/shards.py [--rounds 3] [--samples 600] [--json out.json]

All read the same shards of JPEGs in worker processes, train the same model with the same optimizer, batch and number
of workers, and are timed over whole epochs after the first. Each runs in a process of its own, in turns; ratios are
within a round, figures are medians. Lightning runs without logger, checkpoints and progress bar: with brim's decoder,
with torch's threads as they come and with one thread for training; and with webdataset's own decoder
(``.decode("pilrgb")``, which decodes pictures whole) before the same cut and scaling. brim runs as ``brim train`` does,
and leaves its run folder. The share of decoding is the CPU time of decoding alone, in one process, over the CPU time
that a sample takes in all processes of a contender.

The default ends within two minutes on two cores. ``--rounds 5 --samples 2400 --batches 8 32 --with-workers 1 2
--contenders all`` takes half an hour. With ``--json`` every run is written when it ends, and the same command goes on
from there: what the file has of the same commit and settings is not run again.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from about import about
from torch import Tensor, nn

CLASSES, SIZE, WIDTH = 10, 64, 8
ACROSS, DOWN = 400, 300  # pixels of a picture
EPOCHS = 3  # of which the first is not timed
SHARDS = 8
TICK = os.sysconf("SC_CLK_TCK")


def make_shards(folder: Path, samples: int) -> None:
    """Pictures of 400 x 300 with some 40 kB each: a colour and a frequency by class, and noise."""
    import io

    import numpy as np
    from PIL import Image

    from brim.data import pack

    draw = np.random.default_rng(0)

    def picture(number: int) -> dict[str, Any]:
        label = number % CLASSES
        x, y = np.meshgrid(np.arange(ACROSS), np.arange(DOWN))
        wave = np.sin((x + y * draw.uniform(-1, 1)) * (label + 1) / 40)
        pixels = 128 + 60 * wave[..., None] * draw.uniform(0.5, 1, 3) + draw.normal(0, 12, (DOWN, ACROSS, 3))
        content = io.BytesIO()
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(content, "jpeg", quality=85)
        return {"jpg": content.getvalue(), "cls": label}

    pack((picture(number) for number in range(samples)), folder, samples_per_shard=-(-samples // SHARDS))


class Clock:
    """Times the epochs after the first: seconds that passed, and CPU seconds of this process and its children."""

    def __init__(self) -> None:
        self.began = (0.0, 0.0)
        self.wall, self.cpu = 0.0, 0.0

    def start(self) -> None:
        self.began = time.perf_counter(), cpu_seconds(os.getpid())

    def stop(self) -> None:
        self.wall, self.cpu = time.perf_counter() - self.began[0], cpu_seconds(os.getpid()) - self.began[1]


def cpu_seconds(process: int) -> float:
    """CPU time of a process and of those that it has started and that live."""
    total = 0.0
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total = sum(int(field) for field in fields[11:15]) / TICK  # own, and of children that have ended
        for task in Path(f"/proc/{process}/task").iterdir():
            total += sum(cpu_seconds(int(child)) for child in (task / "children").read_text().split())
    return total


def run_brim(folder: Path, batch: int, workers: int, run: Path) -> Clock:
    import brim
    from brim.config import load_config
    from brim.config.workload import open_workload

    clock = Clock()

    class Timed(brim.Callback):
        def on_epoch_start(self, trainer: Any, epoch: int) -> None:
            if epoch == 2:
                clock.start()

        def on_epoch_end(self, trainer: Any, epoch: int) -> None:
            clock.stop()

    settings = [
        "workload=classifier", f"data.train={folder}", f"data.size={SIZE}", f"model.width={WIDTH}",
        f"train_ds.batch_size={batch}", f"train_ds.num_workers={workers}", f"trainer.epochs={EPOCHS}",
        "trainer.device=cpu", f"trainer.run_dir={run}",
    ]  # fmt: skip
    open_workload(load_config(None, settings)).build_trainer(callbacks=[Timed()]).fit()
    return clock


def cut_and_scaled(picture: Any) -> Tensor:
    """What ``PictureReader`` does to a picture that somebody else has decoded."""
    import random

    import numpy as np
    from PIL import Image

    from brim.workloads.classifier.pictures import random_box

    small = picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=random_box(*picture.size))
    pixels = np.asarray(small)
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())


def stream_of(folder: Path, batch: int, has_own_decoder: bool) -> Any:
    """Batches by webdataset, shuffled, as its documents have it."""
    import webdataset

    from brim.workloads.classifier.pictures import PictureReader

    reader = PictureReader(SIZE, 3, ("crop", "flip"))
    names = sorted(str(path) for path in folder.glob("*.tar"))
    stream = webdataset.WebDataset(names, shardshuffle=len(names), seed=0).shuffle(1000)
    if has_own_decoder:
        stream = stream.decode("pilrgb").to_tuple("jpg", "cls").map_tuple(cut_and_scaled, int)
    else:
        stream = stream.to_tuple("jpg", "cls").map_tuple(lambda content: reader(memoryview(content)), int)
    return stream.batched(batch)


def run_lightning(
    folder: Path, batch: int, workers: int, threads: int | None = None, has_own_decoder: bool = False
) -> Clock:
    import lightning
    import webdataset

    from brim.workloads.classifier import ConvClassifier

    if threads is not None:
        torch.set_num_threads(threads)
    clock = Clock()

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = ConvClassifier(
                [str(label) for label in range(CLASSES)], "picture", (3, SIZE, SIZE), width=WIDTH
            )

        def training_step(self, samples: tuple[Tensor, Tensor], number: int) -> Tensor:
            pictures, labels = samples
            return nn.functional.cross_entropy(self.model(pictures), labels)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

        def on_train_epoch_start(self) -> None:
            if self.current_epoch == 1:
                clock.start()

        def on_train_epoch_end(self) -> None:
            clock.stop()

    loader = webdataset.WebLoader(
        stream_of(folder, batch, has_own_decoder), batch_size=None, num_workers=workers, persistent_workers=workers > 0,
        prefetch_factor=4 if workers else None,
    )  # fmt: skip
    trainer = lightning.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(), loader)
    return clock


def decoding(folder: Path) -> float:
    """CPU seconds that decoding takes, a sample, in one process."""
    from brim.data import Shards
    from brim.workloads.classifier.pictures import PictureReader

    reader, raw = PictureReader(SIZE, 3, ("crop", "flip")), Shards(folder, decode=False)
    contents = [memoryview(raw[number]["jpg"]) for number in range(0, len(raw), max(1, len(raw) // 300))]
    began = time.process_time()
    for content in contents:
        reader(content)
    return (time.process_time() - began) / len(contents)


BRIM = "brim"
SAME, ONE_THREAD, OWN = (
    f"webdataset + Lightning, {how}" for how in ("brim's decoder", "the same, 1 thread", "its own")
)
CONTENDERS: dict[str, Callable[[Path, int, int, Path], Clock]] = {
    SAME: lambda folder, batch, workers, run: run_lightning(folder, batch, workers),
    ONE_THREAD: lambda folder, batch, workers, run: run_lightning(folder, batch, workers, threads=1),
    OWN: lambda folder, batch, workers, run: run_lightning(folder, batch, workers, threads=1, has_own_decoder=True),
    BRIM: run_brim,
}
USUAL = (ONE_THREAD, OWN, BRIM)


def in_a_process(contender: str, folder: Path, batch: int, workers: int, samples: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as run:
        command = [sys.executable, __file__, "--contender", contender, "--folder", str(folder), "--run", f"{run}/run",
                   "--batch", str(batch), "--workers", str(workers)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{contender} failed:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    return {"rate": samples * (EPOCHS - 1) / found["wall"], "cpu": found["cpu"] / samples / (EPOCHS - 1)}


class Runs:
    """What each contender did in each round, kept in a file from run to run."""

    def __init__(self, file: Path | None, facts: dict[str, Any]) -> None:
        self.file, self.facts = file, facts
        self.done: list[dict[str, Any]] = []
        if file is not None and file.exists():
            kept = json.loads(file.read_text())
            is_of_commit = not facts["commit"].endswith("+changes")  # else nobody knows which code it was
            if is_of_commit and all(kept.get(name) == facts[name] for name in ("commit", "samples", "epochs", "torch")):
                self.done = kept["runs"]
                print(f"{file} has {len(self.done)} runs of the same commit and settings, which are not run again")

    def get(self, case: dict[str, Any], run: Callable[[], dict[str, float]]) -> dict[str, float]:
        for one in self.done:
            if all(one[name] == value for name, value in case.items()):
                return one
        self.done.append({**case, **run()})
        self.write()
        return self.done[-1]

    def write(self, **more: Any) -> None:
        if self.file is not None:
            self.file.write_text(json.dumps({**self.facts, **more, "runs": self.done}, indent=2) + "\n")


def compared(folder: Path, given: argparse.Namespace, batch: int, workers: int, runs: Runs) -> dict[str, Any]:
    """Rates and CPU time of the contenders in turns, and brim's ratio to each of the others."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in given.contenders}
    for number in range(given.rounds):
        for name in given.contenders:
            case = {"batch": batch, "workers": workers, "round": number, "contender": name}
            found[name].append(runs.get(case, partial(in_a_process, name, folder, batch, workers, given.samples)))
    rates = {name: [one["rate"] for one in ones] for name, ones in found.items()}
    cpu = {name: [one["cpu"] for one in ones] for name, ones in found.items()}
    spent = decoding(folder)
    row: dict[str, Any] = {
        "batch": batch,
        "workers": workers,
        "samples/s": {name: round(statistics.median(values), 1) for name, values in rates.items()},
        "rounds": {name: [round(value, 1) for value in values] for name, values in rates.items()},
        "CPU ms a sample": {name: round(1e3 * statistics.median(values), 3) for name, values in cpu.items()},
        "decoding, CPU ms a sample": round(1e3 * spent, 3),
        "share of decoding": {  # webdataset's own takes longer
            name: round(spent / statistics.median(values), 3) for name, values in cpu.items() if name != OWN
        },
    }
    if BRIM in rates:
        others = [name for name in rates if name != BRIM]
        row["brim, times"] = {name: beside(rates[BRIM], rates[name]) for name in others}
        row["brim, times by CPU"] = {name: beside(cpu[name], cpu[BRIM]) for name in others}
    return row


def show(row: dict[str, Any]) -> None:
    print(f"\nbatch {row['batch']}, {row['workers']} workers; decoding takes {row['decoding, CPU ms a sample']} CPU ms")
    print(f"{'':46}{'samples/s':>10}{'CPU ms':>8}{'decoding':>10}  brim, times (range), by CPU")
    for name, rate in row["samples/s"].items():
        share = row["share of decoding"].get(name)
        told = ""
        if name in row.get("brim, times", {}):
            times, by_cpu = row["brim, times"][name], row["brim, times by CPU"][name]
            told = f"{times['median']:.2f} ({times['range'][0]:.2f} to {times['range'][1]:.2f}), {by_cpu['median']:.2f}"
        decoded = "" if share is None else f"{100 * share:.0f} %"
        print(f"{name:46}{rate:10.1f}{row['CPU ms a sample'][name]:8.3f}{decoded:>10}  {told}", flush=True)


def beside(ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """The ratios within rounds: their median and range."""
    times = [one / other for one, other in zip(ours, theirs, strict=True)]
    return {"median": round(statistics.median(times), 3), "range": [round(min(times), 3), round(max(times), 3)]}


def cases(batches: list[int], workers: list[int]) -> Iterator[tuple[int, int]]:
    return ((batch, count) for batch in batches for count in workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=600)
    parser.add_argument("--batches", type=int, nargs="+", default=[8])
    parser.add_argument("--with-workers", type=int, nargs="+", default=[2])
    parser.add_argument("--contenders", nargs="+", default=USUAL, choices=("all", *CONTENDERS),
                        help="all: also Lightning with torch's threads as they come, which is slower")  # fmt: skip
    parser.add_argument("--json", type=Path)
    for name, kind in (("contender", str), ("folder", Path), ("run", Path), ("batch", int), ("workers", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender:
        clock = CONTENDERS[given.contender](given.folder, given.batch, given.workers, given.run)
        print(json.dumps({"wall": clock.wall, "cpu": clock.cpu}))
        return
    if "all" in given.contenders:
        given.contenders = tuple(CONTENDERS)
    facts = {**about("lightning", "webdataset", "pillow"), "samples": given.samples, "epochs": EPOCHS}
    print(", ".join(f"{name} {fact}" for name, fact in facts.items()), flush=True)
    runs, rows = Runs(given.json, facts), []
    with tempfile.TemporaryDirectory() as folder:
        shards = Path(folder) / "shards"
        make_shards(shards, given.samples)
        for batch, workers in cases(given.batches, given.with_workers):
            rows.append(compared(shards, given, batch, workers, runs))
            show(rows[-1])
    runs.write(rows=rows)


if __name__ == "__main__":
    main()
