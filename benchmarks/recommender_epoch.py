"""Seconds of an epoch of the recommender with kept encodings over a million pairs, and of ranking for all its users.

    python benchmarks/recommender_epoch.py --device cuda [--rounds 9] [--pairs FILE.npz] [--json out.json]

6,040 users, 3,706 items, batch 2,048, encodings as wide as GPT-2's; on a GPU with TF32 and a captured step, which is
required. An epoch is from its start to its evaluation, with the device waited for at both ends; what its checkpoint
costs is in neither. The first two rounds warm up. Pairs are drawn, some items far oftener than others, or those of a
file that ``--make FILE.npz --data ml-1m`` writes.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from about import about
from torch import nn

import brim
from brim.workloads.recommender import EvalDataLoader, GPT2RecommenderEnhanced, Interactions, TrainDataLoader
from brim.workloads.recommender.files.opening import open_dataset

USERS, ITEMS, PAIRS = 6040, 3706, 1_000_209
BATCH, EMBED_DIM, TEXT_WIDTH = 2048, 64, 768
WARM_UP = 2
BARS = {"epoch": 0.11, "evaluation": 0.05}  # seconds, on one H200


def drawn_pairs(count: int) -> Interactions:
    """Distinct pairs: items about as often as by a power law, people as often as one another."""
    generator = torch.Generator().manual_seed(0)
    popularity = 1 / (torch.arange(ITEMS) + 60.0)
    pairs = torch.empty(0, dtype=torch.long)
    while len(pairs) < count:
        items = torch.multinomial(popularity, count, replacement=True, generator=generator)
        users = torch.randint(USERS, (count,), generator=generator)
        pairs = torch.unique(torch.cat([pairs, users * ITEMS + items]))
    chosen = pairs[torch.randperm(len(pairs), generator=generator)[:count]]
    return Interactions(chosen // ITEMS, chosen % ITEMS, USERS, ITEMS)


def read_pairs(file: Path) -> Interactions:
    with np.load(file) as kept:
        users, items = (torch.from_numpy(kept[name].astype(np.int64)) for name in ("users", "items"))
        return Interactions(users, items, int(kept["n_users"]), int(kept["n_items"]))


def write_pairs(file: Path, data: Path) -> None:
    """All pairs of a data set, in some megabytes that can be carried to another machine."""
    dataset = open_dataset(data)
    splits = [dataset.get_split_data(name) for name in ("train", "validation", "test")]
    users, items = (torch.cat([getattr(split, name) for split in splits]).numpy() for name in ("users", "items"))
    sizes = {"n_users": dataset.get_user_num(), "n_items": dataset.get_item_num()}
    np.savez_compressed(file, users=users.astype(np.int16), items=items.astype(np.int16), **sizes)
    print(f"{file}: {len(users):,} pairs, {file.stat().st_size / 1e6:.1f} MB")


def cached_recommender(pairs: Interactions) -> nn.Module:
    """With kept encodings as wide as GPT-2's. What they say does not matter for the speed."""
    counts = {"users": pairs.n_users, "items": pairs.n_items}
    texts = {kind: [f"{kind} {number}" for number in range(count)] for kind, count in counts.items()}
    model = GPT2RecommenderEnhanced(pairs.n_users, pairs.n_items, EMBED_DIM, texts)
    for tower in (model.users, model.items):
        tower.mean = torch.zeros(TEXT_WIDTH)
        tower.whitening = torch.randn(TEXT_WIDTH, tower.whitening.shape[1]) / TEXT_WIDTH**0.5
        tower.keep(torch.randn(len(tower.text_of), TEXT_WIDTH))
    return model


class Clock(brim.Callback):
    """Seconds of each epoch without its evaluation."""

    def __init__(self) -> None:
        self.began = 0.0
        self.epochs: list[float] = []

    def on_epoch_start(self, trainer: brim.Trainer, epoch: int) -> None:
        self.began = now()

    def on_evaluate_start(self, trainer: brim.Trainer) -> None:
        self.epochs.append(now() - self.began)


class TimedEvaluation(EvalDataLoader):
    """Keeps how long each evaluation took."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        began = now()
        metrics = super().evaluate(model)
        vars(self).setdefault("seconds", []).append(now() - began)
        return metrics


def now() -> float:
    """The time, when the device has done all that it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(pairs: Interactions, arguments: argparse.Namespace) -> dict[str, Any]:
    # Training has all pairs, which are left out of everybody's ranking; to be found there is one item each, any.
    any_item = torch.randint(pairs.n_items, (pairs.n_users,), generator=torch.Generator().manual_seed(1))
    asked = Interactions(torch.arange(pairs.n_users), any_item, pairs.n_users, pairs.n_items)
    judge, clock = TimedEvaluation(asked, pairs, device=arguments.device), Clock()
    on_gpu = torch.device(arguments.device).type == "cuda"
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = brim.Trainer(
            cached_recommender(pairs), TrainDataLoader(pairs, BATCH, device=arguments.device), judge, optimizer="Adam",
            lr=1e-3, epochs=WARM_UP + arguments.rounds, device=arguments.device, run_dir=Path(folder) / "run",
            precision="tf32" if on_gpu else "32", capture="require" if on_gpu else "off", callbacks=[clock],
        )  # fmt: skip
        trainer.fit()
    rounds = {"epoch": clock.epochs[WARM_UP:], "evaluation": vars(judge)["seconds"][WARM_UP:]}
    return {"users": len(judge.users), "pairs": len(pairs), "rounds": rounds,
            "seconds": {name: statistics.median(values) for name, values in rounds.items()}}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--pairs", type=Path, help="a file that --make wrote; drawn without it")
    parser.add_argument("--count", type=int, default=PAIRS, help="how many pairs are drawn")
    parser.add_argument("--make", type=Path, help="write the pairs of --data to this file, and end")
    parser.add_argument("--data", type=Path, help="a folder of MovieLens-1M or of RecBole's files")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.make is not None:
        if arguments.data is None:
            parser.error("--make needs --data")
        write_pairs(arguments.make, arguments.data)
        return
    facts = about()
    print(", ".join(f"{name} {fact}" for name, fact in facts.items()), flush=True)
    pairs = drawn_pairs(arguments.count) if arguments.pairs is None else read_pairs(arguments.pairs)
    found = measure(pairs, arguments)
    for name, seconds in found["seconds"].items():
        values = found["rounds"][name]
        met = "met" if seconds <= BARS[name] else "missed"
        print(f"{name:12}{seconds:9.4f} s ({min(values):.4f} to {max(values):.4f}), bar {BARS[name]} on an H200: {met}")
    if arguments.json:
        arguments.json.write_text(
            json.dumps({**facts, "device": arguments.device, **found, "bars": BARS}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
