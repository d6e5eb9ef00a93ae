"""Does text help? NDCG@10 on the embedded data: ids alone, text beside ids, random vectors in the place of text.

Same settings for all, those of ``brim train``; several seeds of initialisation and order. Random vectors are whitened
as encodings are, so that what differs is what the text says.

    python benchmarks/text_helps.py [--seeds 3] [--json out.json]
"""

import argparse
import json
import statistics
import tempfile
from datetime import date
from pathlib import Path

import torch
from torch import nn

import brim
from brim.workloads.recommender import (
    BPR,
    EASE,
    EmbeddedDataset,
    EvalDataLoader,
    GPT2RecommenderEnhanced,
    Popularity,
    TrainDataLoader,
)
from brim.workloads.recommender.gpt2_recommender import whiten

EMBED_DIM = 64


def ids_alone(dataset: EmbeddedDataset) -> nn.Module:
    return BPR(dataset.get_user_num(), dataset.get_item_num(), EMBED_DIM)


def text_beside_ids(dataset: EmbeddedDataset) -> GPT2RecommenderEnhanced:
    return GPT2RecommenderEnhanced(dataset.get_user_num(), dataset.get_item_num(), EMBED_DIM, dataset)


def random_in_the_place_of_text(dataset: EmbeddedDataset) -> nn.Module:
    model = text_beside_ids(dataset)
    for tower in (model.users, model.items):
        tower.encodings = torch.randn(len(tower.token_lengths), model.encoder.width)
        tower.mean, tower.whitening = whiten(tower.encodings, tower.whitening.shape[1])
    return model


MODELS = {"ids": ids_alone, "text + ids": text_beside_ids, "random + ids": random_in_the_place_of_text}


def test_ndcg(name: str, dataset: EmbeddedDataset, seed: int) -> float:
    train, validation, test = (dataset.get_split_data(split) for split in ("train", "validation", "test"))
    torch.manual_seed(seed)
    model = MODELS[name](dataset)
    with tempfile.TemporaryDirectory() as folder:
        trainer = brim.Trainer(
            model, TrainDataLoader(train, 2048, device="cpu"), EvalDataLoader(validation, train, device="cpu"),
            EvalDataLoader(test, train, device="cpu", also_mask=validation), epochs=60, patience=5, lr=3e-3, seed=seed,
            device="cpu", threads=1, run_dir=Path(folder) / "run",
        )  # fmt: skip
        return trainer.fit().metrics["ndcg@10"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    dataset = EmbeddedDataset()
    train, validation, test = (dataset.get_split_data(split) for split in ("train", "validation", "test"))
    judge = EvalDataLoader(test, train, device="cpu", also_mask=validation)
    rows: dict[str, list[float]] = {
        "popularity": [judge.evaluate(Popularity(train))["ndcg@10"]],
        "EASE": [judge.evaluate(EASE(train))["ndcg@10"]],
    }
    for name in MODELS:
        rows[name] = [test_ndcg(name, dataset, seed) for seed in range(arguments.seeds)]
    print(f"\nembedded data, {len(train):,} training pairs, test NDCG@10, {date.today()}\n")
    for name, values in rows.items():
        mean = statistics.mean(values)
        print(f"{name:14}{mean:8.4f}{mean / rows['popularity'][0]:7.2f}x   {'  '.join(f'{v:.4f}' for v in values)}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"date": str(date.today()), "ndcg@10": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
