"""Which ways of reading texts rank better: many short trainings on one GPU, from arrays that can be carried to it.

    python benchmarks/text_sweep.py --make split.npz --data ml-1m --split FOLDER --encoder FOLDER    # where the data is
    python benchmarks/text_sweep.py --sweep split.npz --device cuda [--trials 24] [--seeds 3] [--lines trials.jsonl]

Each of ids, text + ids and random + ids gets equally many trials, drawn from the same ranges: temperature, how much
popularity counts at first, how much a rarely rated item weighs in the loss, and for those that read vectors how they
are read (below). A line for each trial has the validation split alone. It chooses twice for each model: the best
NDCG@10, and the best Recall@20 on the less-rated half among trials whose NDCG@10 is at most ``--slack`` below that.
Only what was chosen is trained with further seeds and ranked on the test split, at the end. A file of lines is
gone on with, where it is of the same arrays and lengths of training.

How vectors are read: ``gate`` n / (n + gate) of an item's id counts where it has n ratings; ``neighbours`` what people
watched is spread over the nearest items by text before they are summed up, ``spread`` times as strong; ``towers`` a
cosine of texts alone with a temperature of its own beside that of ids; ``text_bias`` a bias read from the text.
"""

import argparse
import json
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

EMBED_DIM, TEXT_DIM, PEOPLE, HIDDEN, LR = 192, 128, 256, 0.6, 1.5e-3
MODELS = ("ids", "text + ids", "random + ids")
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Trial:
    """What differs between trainings."""

    model: str
    temperature: float = 6.0
    popularity: float = 1.0
    rare_weight: float = 0.0  # a hidden item counts (mean n / n) to this power
    gate: float = 0.0
    neighbours: int = 0
    spread: float = 0.0
    towers: bool = False
    text_bias: bool = False

    @classmethod
    def drawn(cls, model: str, number: int) -> "Trial":
        """The same common settings for all models of a number, so that none is tuned more than another."""
        draw = random.Random(number)
        common = {"temperature": draw.choice((5.0, 6.0, 7.0, 8.0)), "popularity": draw.choice((0.6, 0.8, 1.0)),
                  "rare_weight": draw.choice((0.0, 0.1, 0.2, 0.35))}  # fmt: skip
        if model == "ids":
            return cls(model, **common)
        return cls(
            model, **common, gate=draw.choice((0.0, 10.0, 30.0, 100.0)), neighbours=draw.choice((0, 5, 20)),
            spread=draw.choice((0.1, 0.3, 1.0)), towers=draw.random() < 0.5, text_bias=draw.random() < 0.5,
        )  # fmt: skip


class Data:
    """Splits as matrices of people by items, and encodings, on the device."""

    def __init__(self, file: Path, device: str) -> None:
        with np.load(file) as kept:
            shape = int(kept["n_users"]), int(kept["n_items"])
            self.matrix = {name: torch.zeros(shape, device=device) for name in SPLITS}
            for name, matrix in self.matrix.items():
                users, items = (
                    torch.from_numpy(kept[f"{name}_{part}"].astype(np.int64)) for part in ("users", "items")
                )
                matrix[users.to(device), items.to(device)] = 1.0
            self.encodings = torch.from_numpy(kept["encodings"].astype(np.float32)).to(device)
        self.counts = self.matrix["train"].sum(0)
        self.is_rare = torch.zeros_like(self.counts)
        self.is_rare[torch.argsort(self.counts, stable=True)[: shape[1] // 2]] = 1.0


class Model(nn.Module):
    """Directions of items are ids plus what is read; a person is the sum of what they watched."""

    def __init__(self, trial: Trial, data: Data) -> None:
        super().__init__()
        self.trial = trial
        items, device = len(data.counts), data.counts.device
        self.log_share = torch.log((data.counts + 1) / (data.counts + 1).sum())
        reads = trial.model != "ids"
        self.ids = nn.Parameter(0.01 * (0.2 if reads else 1.0) * torch.randn(items, EMBED_DIM, device=device))
        self.bias = nn.Parameter(trial.popularity * self.log_share.clone())
        self.slopes = nn.Parameter(torch.zeros(2, device=device))
        self.share = data.counts / (data.counts + trial.gate) if trial.gate else (data.counts > 0).float()
        self.texts = None
        if reads:
            random_ones = torch.randn_like(data.encodings)
            self.texts = whitened(random_ones if trial.model == "random + ids" else data.encodings)
            self.projection = nn.Parameter(0.05 * torch.randn(self.texts.shape[1], EMBED_DIM, device=device))
            self.near = neighbours(self.texts, trial.neighbours) if trial.neighbours else None
            self.text_temperature = nn.Parameter(torch.tensor(1.0, device=device))
            self.bias_of_text = nn.Parameter(torch.zeros(self.texts.shape[1], device=device))
        watched = data.matrix["train"]
        habits = self.habits(watched)[watched.sum(1) > 0]
        self.habit_mean, self.habit_spread = habits.mean(0), habits.std(0).clamp(min=1e-3)

    def habits(self, watched: Tensor) -> Tensor:
        many = watched.sum(1).clamp(min=1)
        return torch.stack([many.log(), watched @ self.log_share / many], 1)

    def forward(self, watched: Tensor) -> Tensor:
        trial = self.trial
        habits = (self.habits(watched) - self.habit_mean) / self.habit_spread
        heat = torch.exp(habits @ self.slopes)[:, None]
        if self.texts is None:
            return trial.temperature * heat * cosines(watched, self.ids) + self.bias
        read, ids = self.texts @ self.projection, self.ids * self.share[:, None]
        bias = self.bias + self.texts @ self.bias_of_text if trial.text_bias else self.bias
        seen = watched if self.near is None else watched + trial.spread * (watched @ self.near)
        if not trial.towers:
            return trial.temperature * heat * cosines(seen, ids + read) + bias
        return (
            heat * (trial.temperature * cosines(seen, ids + read) + self.text_temperature * cosines(seen, read)) + bias
        )


def cosines(watched: Tensor, directions: Tensor) -> Tensor:
    return normalize(watched @ directions, dim=1) @ normalize(directions, dim=1).T


def whitened(encodings: Tensor) -> Tensor:
    centred = encodings - encodings.mean(0)
    left, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    return normalize(left[:, : min(TEXT_DIM, int((sizes > 1e-3 * sizes[0]).sum()))], dim=1)


def neighbours(texts: Tensor, count: int) -> Tensor:
    """Row by row the nearest other items, with weights that add up to 1."""
    alike = (texts @ texts.T).fill_diagonal_(-1)
    best = alike.topk(count, dim=1)
    return torch.zeros_like(alike).scatter_(1, best.indices, (best.values.clamp(min=0) * 8).softmax(1))


def metrics(model: Model, data: Data, split: str) -> dict[str, float]:
    """NDCG@10, Recall@20 and that of the less-rated half: known items left out, people without any not counted."""
    discount = 1 / torch.log2(torch.arange(2, 12, device=data.counts.device).float())
    ideal, found = discount.cumsum(0), {"ndcg@10": [], "recall@20": [], "rare": []}
    relevant = data.matrix[split]
    for users in relevant.sum(1).nonzero().flatten().split(1024):
        with torch.no_grad():
            scores = model(data.matrix["train"][users])
        known = data.matrix["train"][users] + (data.matrix["validation"][users] if split == "test" else 0)
        top = scores.masked_fill(known > 0, -torch.inf).topk(20, dim=1).indices
        wanted = relevant[users]
        hits, count = wanted.gather(1, top), wanted.sum(1)
        found["ndcg@10"].append(hits[:, :10] @ discount / ideal[count.clamp(max=10).long() - 1])
        found["recall@20"].append(hits.sum(1) / count)
        rare = wanted * data.is_rare
        has_rare = rare.sum(1) > 0
        found["rare"].append((rare.gather(1, top).sum(1) / rare.sum(1))[has_rare])
    return {name: float(torch.cat(values).mean()) for name, values in found.items()}


def train(trial: Trial, data: Data, seed: int, epochs: int, patience: int) -> tuple[Model, dict[str, float]]:
    """The model with the weights that rank the validation split best, and how well they do."""
    torch.manual_seed(seed)
    model = Model(trial, data)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    watched = data.matrix["train"]
    people = watched.sum(1).nonzero().flatten()
    scale = float(watched.sum() / len(watched))
    weights = (data.counts[data.counts > 0].mean() / data.counts.clamp(min=1)) ** trial.rare_weight
    never = data.counts == 0
    best: tuple[dict[str, float], dict[str, Tensor]] | None = None
    since = 0
    for _ in range(epochs):
        for users in people[torch.randperm(len(people), device=people.device)].split(PEOPLE):
            rows = watched[users]
            hidden = rows * (torch.rand_like(rows) < HIDDEN)
            seen = rows - hidden
            scores = model(seen).masked_fill((seen > 0) | never, -1e4)
            likelihoods = scores - scores.logsumexp(1, keepdim=True)
            loss = -(likelihoods * hidden * weights).sum(1).mean() / scale
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        now = metrics(model, data, "validation")
        since += 1
        if best is None or now["ndcg@10"] > best[0]["ndcg@10"]:
            best, since = (now, {name: value.clone() for name, value in model.state_dict().items()}), 0
        if since >= patience:
            break
    assert best is not None
    model.load_state_dict(best[1])
    return model, best[0]


def sweep(data: Data, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A line for each trial; those that the file has are not run again."""
    made = {"arrays": arguments.sweep.name, "epochs": arguments.epochs, "patience": arguments.patience}
    kept = arguments.lines.read_text().splitlines() if arguments.lines.exists() else []
    lines = [line for line in map(json.loads, kept) if made.items() <= line.items()]
    for number in range(arguments.trials):
        for name in MODELS:
            if any(line["number"] == number and line["trial"]["model"] == name for line in lines):
                continue
            began, trial = time.perf_counter(), Trial.drawn(name, number)
            _, found = train(trial, data, 0, arguments.epochs, arguments.patience)
            line = {**made, "number": number, "trial": asdict(trial), "validation": found,
                    "s": round(time.perf_counter() - began, 1)}  # fmt: skip
            lines.append(line)
            with arguments.lines.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{number:3} {name:14}" + "".join(f"{value:8.4f}" for value in found.values()), trial, flush=True)
    return lines


def chosen(lines: list[dict[str, Any]], name: str, slack: float) -> dict[str, Trial]:
    """By the validation split alone."""
    own = [line for line in lines if line["trial"]["model"] == name]
    best = max(own, key=lambda line: line["validation"]["ndcg@10"])
    near = [line for line in own if line["validation"]["ndcg@10"] >= best["validation"]["ndcg@10"] - slack]
    rare = max(near, key=lambda line: line["validation"]["rare"])
    return {"by NDCG@10": Trial(**best["trial"]), "by the less-rated half": Trial(**rare["trial"])}


def tell(data: Data, lines: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    print(f"\n{'test split':46}{'NDCG@10':>9}{'Recall@20':>11}{'less-rated half':>17}")
    for name in MODELS:
        for how, trial in chosen(lines, name, arguments.slack).items():
            for seed in range(arguments.seeds):
                model, validation = train(trial, data, seed, arguments.epochs, arguments.patience)
                found = metrics(model, data, "test")
                print(f"{f'{name}, {how}, seed {seed}':46}{found['ndcg@10']:9.4f}{found['recall@20']:11.4f}"
                      f"{found['rare']:17.4f}", flush=True)  # fmt: skip
                line = {"told": how, "seed": seed, "trial": asdict(trial), "validation": validation, "test": found}
                with arguments.lines.with_suffix(".told.jsonl").open("a") as file:
                    file.write(json.dumps(line) + "\n")


def make(arguments: argparse.Namespace) -> None:
    from brim.workloads.recommender.files.opening import open_dataset
    from brim.workloads.recommender.history.item_encodings import item_encodings

    dataset = open_dataset(arguments.data, arguments.split)
    arrays: dict[str, Any] = {"n_users": dataset.get_user_num(), "n_items": dataset.get_item_num()}
    for name in SPLITS:
        pairs = dataset.get_split_data(name)
        arrays |= {f"{name}_users": pairs.users.numpy().astype(np.int32)}
        arrays |= {f"{name}_items": pairs.items.numpy().astype(np.int32)}
    encodings = item_encodings(dataset.get_item_num(), dataset, arguments.encoder)
    np.savez_compressed(arguments.make, encodings=encodings.numpy().astype(np.float16), **arrays)
    print(f"{arguments.make}: {arguments.make.stat().st_size / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", type=Path, help="write the split and the encodings to this file")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--split", type=Path)
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--sweep", type=Path, help="the file that --make wrote")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--trials", type=int, default=24, help="of each model")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--patience", type=int, default=5)
    parser.add_argument("--slack", type=float, default=0.002)
    parser.add_argument("--lines", type=Path, default=Path("trials.jsonl"))
    arguments = parser.parse_args()
    if arguments.make is not None and arguments.data is not None:
        make(arguments)
    elif arguments.sweep is not None:
        data = Data(arguments.sweep, arguments.device)
        tell(data, sweep(data, arguments), arguments)
    else:
        parser.error("say --make FILE --data FOLDER, or --sweep FILE")


if __name__ == "__main__":
    main()
