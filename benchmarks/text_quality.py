"""How well the recommender of histories ranks: beside popularity and EASE, with text, without, with random vectors.

All have the same loss and settings; the temperature of each is chosen on the validation split, from the same few, and
the test split is ranked with training and validation items left out. Slices: all items; the less-rated half of the
items, to be found among all; and a tenth of the items held out of training, ranked among themselves for the people who
watched them, beside popularity within their genres. Intervals are of resampled users. A file named with ``--json`` is
written anew after each row, so that a run that is ended early leaves what it had.

    python benchmarks/text_quality.py --encoder FOLDER [--data ml-1m] [--split FOLDER] [--device cuda] [--json out.json]

``--encoder`` is a folder or a hub name of a pretrained model that transformers can load, such as all-MiniLM-L6-v2.
"""

import argparse
import json
import os
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from about import about

import brim
from brim.workloads.recommender import (
    EASE,
    EvalDataLoader,
    HistoryLoader,
    HistoryRecommender,
    Interactions,
    ML1MDataset,
    Popularity,
)
from brim.workloads.recommender.comparison import (
    AmongItems,
    GenrePopularity,
    GenreTaste,
    difference_interval,
    hold_out_items,
    less_rated_half,
    mean_interval,
    only_items,
)
from brim.workloads.recommender.history.history_recommender import item_encodings

# Published by RecBole-GNN for this protocol (results/general/ml-1m.md); not run here.
LIGHTGCN = {"ndcg@10": 0.2538, "recall@10": 0.1861}
MODELS = {"ids": "ids", "text + ids": None, "random + ids": "random"}
TEMPERATURES = (5.0, 6.0, 7.0)
COLD_TEMPERATURE = 6.0
EASE_REGULARISATIONS = (250.0, 500.0, 1000.0)
SETTINGS: dict[str, Any] = {"optimizer": "Adam", "lr": 1.5e-3, "epochs": 100, "patience": 5}
EMBED_DIM, PEOPLE, HIDDEN = 192, 256, 0.6
NDCG, RECALL = "ndcg@10", "recall@20"


class Judge:
    """The splits of a data set, and what is measured of a model on them."""

    def __init__(self, train: Interactions, validation: Interactions, test: Interactions, device: str) -> None:
        self.train, self.device = train, device
        rare = less_rated_half(train)
        self.validation = EvalDataLoader(validation, train, device=device)
        self.all = EvalDataLoader(test, train, device=device, also_mask=validation)
        self.rare = EvalDataLoader(only_items(test, rare), train, device=device, also_mask=validation)

    def slices(self, model: torch.nn.Module) -> dict[str, torch.Tensor]:
        model = model.to(self.device).eval()
        everything = self.all.evaluate_each(model)
        return {NDCG: everything[NDCG], RECALL: everything[RECALL], "rare": self.rare.evaluate_each(model)[RECALL]}


def fit(judge: Judge, name: str, temperature: float, seed: int, task: "Task") -> tuple[float, HistoryRecommender, int]:
    """Validation NDCG@10 and the model with its best weights."""
    torch.manual_seed(seed)
    model = HistoryRecommender.of(
        judge.train, embed_dim=EMBED_DIM, temperature=temperature, control=MODELS[name], encodings=task.encodings
    )
    with tempfile.TemporaryDirectory(dir=task.folder) as run:
        trainer = brim.Trainer(
            model, HistoryLoader(judge.train, PEOPLE, HIDDEN, device=judge.device), judge.validation, seed=seed,
            device=judge.device, threads=1, run_dir=Path(run) / "run", **{**SETTINGS, "epochs": task.epochs},
        )  # fmt: skip
        result = trainer.fit()
    return judge.validation.evaluate(model)[NDCG], model, result.epochs


def tuned_ease(judge: Judge) -> tuple[EASE, float]:
    scored = [(judge.validation.evaluate(EASE(judge.train, value).to(judge.device))[NDCG], value) for value in
              EASE_REGULARISATIONS]  # fmt: skip
    best = max(scored)[1]
    return EASE(judge.train, best), best


def show(name: str, values: dict[str, torch.Tensor], note: str = "") -> dict[str, Any]:
    intervals = {metric: mean_interval(each) for metric, each in values.items()}
    cells = "".join(f"  {i.mean:.4f} [{i.low:.4f}, {i.high:.4f}]" for i in intervals.values())
    print(f"{name:24}{cells}  {note}", flush=True)
    return {metric: asdict(interval) for metric, interval in intervals.items()}


def measure_baselines(judge: Judge) -> dict[str, Any]:
    print(f"\n{'test split':24}  {NDCG:24}  {RECALL:24}  {RECALL}, less-rated half")
    ease, regularisation = tuned_ease(judge)
    rows: dict[str, Any] = {
        "popularity": show("popularity", judge.slices(Popularity(judge.train))),
        "EASE 250": show("EASE 250", judge.slices(EASE(judge.train, 250.0))),
        "EASE tuned": {**show("EASE, tuned", judge.slices(ease), f"{regularisation:g}"), "chosen": regularisation},
        "LightGCN, published by RecBole-GNN": LIGHTGCN,
    }
    print(f"{'LightGCN, as published':24}  {LIGHTGCN[NDCG]:.4f}", flush=True)
    return rows


def measure_model(judge: Judge, name: str, seed: int, task: "Task") -> dict[str, Any]:
    """The model whose temperature ranks the validation split best, and what the others came to."""
    tried, best = {}, None
    for temperature in task.temperatures:
        validation, model, epochs = fit(judge, name, temperature, seed, task)
        values = judge.slices(model)
        tried[temperature] = {"validation": validation, "epochs": epochs,
                              **{metric: float(each.mean()) for metric, each in values.items()}}  # fmt: skip
        if best is None or validation > best[0]:
            best = validation, temperature, values
    assert best is not None
    row = show(f"{name}, seed {seed}", best[2], f"temperature {best[1]:g}")
    return {**row, "chosen": best[1], "tried": tried}


@dataclass(frozen=True)
class Task:
    """What all models of a run share."""

    encodings: torch.Tensor
    temperatures: tuple[float, ...]
    models: tuple[str, ...]
    epochs: int
    folder: Path


def summary(rows: dict[str, Any], seeds: int) -> dict[str, Any]:
    def values(name: str, metric: str) -> list[float]:
        return [rows[f"{name}, seed {seed}"][metric]["mean"] for seed in range(seeds)]

    text, ids, control = (values(name, NDCG) for name in ("text + ids", "ids", "random + ids"))
    rare = {name: statistics.mean(values(name, "rare")) for name in MODELS}
    return {
        "above EASE 250 in every seed": min(text) > rows["EASE 250"][NDCG]["mean"],
        "above tuned EASE in every seed": min(text) > rows["EASE tuned"][NDCG]["mean"],
        "above ids in every seed": all(a > b for a, b in zip(text, ids, strict=True)),
        "above random by more than the spread": min(text) > max(control),
        "rare, text to ids": rare["text + ids"] / max(rare["ids"], 1e-9),
        "rare": rare,
    }


def measure_cold(dataset: ML1MDataset, device: str, task: Task) -> dict[str, Any]:
    """A tenth of the items in no split of training; whoever watched one, in any split, is to be ranked those."""
    splits = [dataset.get_split_data(name) for name in ("train", "validation", "test")]
    cold, (train, validation, test) = hold_out_items(splits)
    everything = Interactions(*(torch.cat([getattr(s, part) for s in splits]) for part in ("users", "items")),
                              train.n_users, train.n_items)  # fmt: skip
    judge = Judge(train, validation, test, device)
    # Nobody has a training pair with a cold item, so nothing is masked among them.
    among = EvalDataLoader(only_items(everything, cold), train, device=device)
    models: dict[str, torch.nn.Module] = {
        "popularity of genres": GenrePopularity(train, dataset.movies),
        "taste for genres": GenreTaste(train, dataset.movies),
    }
    for name in task.models:
        models[name] = fit(judge, name, COLD_TEMPERATURE, 0, task)[1]
    print(f"\n{f'{len(cold)} held-out items':24}  {NDCG:24}  {RECALL}")
    each = {}
    for name, model in models.items():
        found = among.evaluate_each(AmongItems(model, cold, train.n_items).to(device).eval())
        each[name] = {NDCG: found[NDCG], RECALL: found[RECALL]}
    rows: dict[str, Any] = {name: show(name, values) for name, values in each.items()}
    for name in ("popularity of genres", "taste for genres") if "text + ids" in each else ():
        above = difference_interval(each["text + ids"][NDCG], each[name][NDCG])
        print(f"text + ids is {above.mean:+.4f} [{above.low:+.4f}, {above.high:+.4f}] above {name}")
        rows[f"text + ids above {name}"] = asdict(above)
    return rows


def parse_arguments() -> argparse.Namespace:
    test_data = os.environ.get("BRIM_TEST_DATA")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", required=True, help="a folder or hub name of a pretrained text encoder")
    parser.add_argument("--data", type=Path, default=Path(test_data) / "ml-1m" if test_data else None,
                        help="the folder of MovieLens-1M (default: ml-1m in $BRIM_TEST_DATA)")  # fmt: skip
    parser.add_argument("--split", type=Path, help="train.tsv, valid.tsv, test.tsv (default: DATA/recbole_split_ge3)")
    parser.add_argument("--split-seed", type=int, help="instead of --split: a random split of ratings of 3 and more")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parts", nargs="+", choices=("warm", "cold"), default=("warm", "cold"))
    parser.add_argument("--temperatures", type=float, nargs="+", default=TEMPERATURES, help="to choose from")
    parser.add_argument("--encoder-name", help="what the JSON calls the encoder (default: the end of --encoder)")
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    parser.add_argument("--epochs", type=int, default=SETTINGS["epochs"], help="at most")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("say where MovieLens-1M is: --data, or BRIM_TEST_DATA")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    if arguments.split_seed is not None:
        dataset = ML1MDataset(arguments.data, min_rating=3, seed=arguments.split_seed)
    else:
        dataset = ML1MDataset(arguments.data, split_files=arguments.split or arguments.data / "recbole_split_ge3")
    splits = [dataset.get_split_data(name) for name in ("train", "validation", "test")]
    facts: dict[str, Any] = {
        **about("transformers"), "encoder": arguments.encoder_name or Path(arguments.encoder).name,
        "device": arguments.device, "train": len(splits[0]), "embed_dim": EMBED_DIM, "people": PEOPLE, "hidden": HIDDEN,
        "temperatures": arguments.temperatures, **SETTINGS, "epochs": arguments.epochs,
    }  # fmt: skip

    def write() -> None:
        if arguments.json:
            arguments.json.write_text(json.dumps(facts, indent=2) + "\n")

    with tempfile.TemporaryDirectory() as folder:
        encodings = item_encodings(dataset.get_item_num(), dataset, arguments.encoder, None)
        task = Task(encodings, tuple(arguments.temperatures), tuple(arguments.models), arguments.epochs, Path(folder))
        if "warm" in arguments.parts:
            judge = Judge(*splits, arguments.device)
            facts["warm"] = rows = measure_baselines(judge)
            for seed in range(arguments.seeds):
                for name in task.models:
                    rows[f"{name}, seed {seed}"] = measure_model(judge, name, seed, task)
                    write()
            if set(task.models) == set(MODELS):
                facts["bars"] = summary(rows, arguments.seeds)
                print(json.dumps(facts["bars"], indent=2))
        if "cold" in arguments.parts:
            facts["cold"] = measure_cold(dataset, arguments.device, task)
        write()


if __name__ == "__main__":
    main()
