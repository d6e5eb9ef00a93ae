"""Readers of what belongs to a run: configuration, checkpoint, weights, the run's page, its model."""

import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import nn

import brim
from brim.config import load_config, show_config
from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.engine.checkpoints.weights import load_weights, save_weights
from brim.engine.components.precision import Precision
from brim.engine.run_state.progress import Progress
from brim.engine.run_state.training_state import TrainingState
from brim.record import RunFolder, write_report
from brim.workloads.recommender import BPR
from fuzzing.formats import Files, as_json, spoil
from fuzzing.mutation import mutate
from fuzzing.reader import Reader

CONFIG = "c.yaml"
OVERRIDES = [b"trainer.lr=0.01", b"eval_ds.k=[5, 10]", b"trainer={epochs: 3, clip_norm: 1.0}"]
STEP = "step-000000003"


def any_of(random: Random, files: Files) -> None:
    spoil(random, files, random.choice(list(files)))


# The configuration


def make_config(folder: Path) -> None:
    optimizer = "{name: AdamW, betas: [0.9, 0.99]}"
    config = load_config(None, [f"trainer.optimizer={optimizer}", "trainer.scheduler={name: cosine, warmup: 0.1}"])
    (folder / CONFIG).write_text(show_config(config))


def read_config(folder: Path, random: Random) -> None:
    overrides = []
    if random.random() < 0.3:
        overrides = [mutate(random, random.choice(OVERRIDES)).decode("utf-8", "surrogateescape")]
    shown = show_config(load_config(folder / CONFIG, overrides))
    (folder / "shown.yaml").write_text(shown)
    assert show_config(load_config(folder / "shown.yaml")) == shown


# Checkpoints


def make_state() -> TrainingState:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    return TrainingState(model, optimizer, scheduler, Precision("32", torch.device("cpu")), Progress())


def make_checkpoint(folder: Path) -> None:
    state = make_state()
    for _ in range(3):
        state.model(torch.ones(2, 3)).sum().backward()
        state.optimizer.step()
        state.scheduler.step()
    state.progress = Progress(3, 1, 4, 0.5, 2, 1, 1, 8, {"loss": 0.5}, {"loss": 0.5})
    Checkpoints(folder, keep=1).save(state)


def spoil_checkpoint(random: Random, files: Files) -> None:
    names = ["training.pt", "training.pt", "progress.json", "progress.json", "model.safetensors", "checksums.json"]
    chosen = random.choice(names)
    spoil(random, files, f"{STEP}/{chosen}")
    if chosen != "checksums.json" and random.random() < 0.95:  # past the checksums, to what reads the files
        restore_checksums(files, STEP)


def restore_checksums(files: Files, folder: str) -> None:
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items() if name.startswith(folder)}
    files[f"{folder}/checksums.json"] = as_json(
        {name.rpartition("/")[2]: found for name, found in sums.items() if not name.endswith("checksums.json")}
    )


def read_checkpoint(folder: Path, random: Random) -> None:
    checkpoints, state = Checkpoints(folder, keep=1), make_state()
    path = checkpoints.newest_whole(lambda sentence: None)
    if path is not None:
        checkpoints.load(path, state)
        assert is_plausible(state.progress), f"taken for progress: {state.progress}"


def is_plausible(progress: Progress) -> bool:
    """What the training loop takes for granted."""
    counts = [progress.step, progress.epoch, progress.position, progress.best_step, progress.best_epoch]
    chosen = [count for count in (progress.threads, progress.micro_batch) if count is not None]
    if not isinstance(progress.metrics, dict) or not isinstance(progress.best_metrics, dict):
        return False
    numbers = [*progress.metrics.values(), *progress.best_metrics.values()]
    return (
        all(type(count) is int and 0 <= count < 2**63 for count in counts)
        and all(type(count) is int and 1 <= count < 2**63 for count in chosen)
        and all(isinstance(number, int | float) for number in numbers)
        and (progress.best is None or isinstance(progress.best, int | float))
    )


# Weights by themselves


def make_weights(folder: Path) -> None:
    torch.manual_seed(0)
    for name in ("model.safetensors", "model.pt"):
        save_weights(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), folder / name)


def read_weights(folder: Path, random: Random) -> None:
    for name in ("model.safetensors", "model.pt"):
        load_weights(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), folder / name)


# The run's page, and the model that a run folder describes


def make_run(folder: Path) -> None:
    torch.manual_seed(0)
    run = RunFolder.create(folder)
    lines: list[dict[str, Any]] = [
        {
            "time": 100.0 + step,
            "step": step,
            "epoch": 1,
            "loss": 1 / step,
            "eval/ndcg@10": 0.1,
            "memory_allocated": 2**30,
            "step_ms": 5.0 * step,
            "feed/wait_ms": 1.0,
            "share/compute": 0.5,
        }
        for step in range(1, 6)
    ]
    run.write("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    run.write("events.jsonl", json.dumps({"time": 100.0, "kind": "note", "line": "hello"}) + "\n")
    run.write("config.yaml", "workload: recommender\ntrainer: {epochs: 3}\n")
    run.write_json("model.json", {"model": "BPR", "arguments": {"n_users": 3, "n_items": 4, "embed_dim": 2}})
    run.write_json("machine.json", {"cores": 2, "gpus": ["a", "b"]})
    forecast = {"reserved": 2**31, "limit": 2**32, "parts": {"activations": 2**30}, "card": "H200", "notes": ["note"]}
    run.write_json("plan.json", {"micro_batch": 8, "reasons": ["because"], "advice": ["or"], "forecast": forecast})
    table = {"BPR": {"ndcg@10": 0.25}, "popularity": {"ndcg@10": 0.125}}
    run.write_json("result.json", {"steps": 5, "ended": "done", "monitor": "ndcg@10", "table": table})
    Checkpoints(run.checkpoints, keep=1).save_best(BPR(3, 4, 2), 5)


def spoil_page(random: Random, files: Files) -> None:
    spoil(random, files, random.choice([name for name in files if "/" not in name]))


def read_page(folder: Path, random: Random) -> None:
    page = write_report(RunFolder.open(folder)).read_text()
    assert page.count("</script>") == 2, "a text of the run ends the block that it stands in"


def spoil_model(random: Random, files: Files) -> None:
    spoil(random, files, random.choice(["model.json", "model.json", "checkpoints/best/model.safetensors"]))
    restore_checksums(files, "checkpoints/best")


def read_model(folder: Path, random: Random) -> None:
    brim.load(folder)


READERS = {
    "configuration": Reader(make_config, any_of, read_config),
    "checkpoint": Reader(make_checkpoint, spoil_checkpoint, read_checkpoint),
    "weights": Reader(make_weights, any_of, read_weights),
    "page": Reader(make_run, spoil_page, read_page),
    "model": Reader(make_run, spoil_model, read_model),
}
