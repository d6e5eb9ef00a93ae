"""Does text help? NDCG@10 on the embedded data: ids alone, text beside ids, random vectors in the place of text.

The settings of ``brim train``, several seeds of initialisation and order. Random vectors are whitened as encodings are,
so that what differs is what the text says. Ids alone also get other learning rates and weight decays, since a rival
that was not tuned proves little, and text is also read centred but not whitened, and as it comes out of the
encoder: a small GPT-2 with random weights.

    python benchmarks/text_helps.py [--seeds 3] [--json out.json]
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from about import about
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

EMBED_DIM, ENCODER = 64, "tiny"  # a small GPT-2 with random weights, as `brim train` takes it


def ids_alone(dataset: EmbeddedDataset) -> nn.Module:
    return BPR(dataset.get_user_num(), dataset.get_item_num(), EMBED_DIM)


def text_beside_ids(dataset: EmbeddedDataset) -> GPT2RecommenderEnhanced:
    return GPT2RecommenderEnhanced(dataset.get_user_num(), dataset.get_item_num(), EMBED_DIM, dataset, gpt2=ENCODER)


def random_in_the_place_of_text(dataset: EmbeddedDataset) -> nn.Module:
    model = text_beside_ids(dataset)
    for tower in (model.users, model.items):
        vectors = torch.randn(len(tower.token_lengths), model.encoder.width)
        tower.mean, tower.whitening = whiten(vectors, tower.whitening.shape[1])
        tower.keep(vectors)
    return model


def not_whitened(dataset: EmbeddedDataset, centred: bool) -> nn.Module:
    """The same directions of the encodings with their own spectrum, scaled as one to an average length of 1."""
    model = text_beside_ids(dataset)
    for tower in (model.users, model.items):
        encodings = model.encoder.encode_all(tower.tokens)
        mean = encodings.mean(0)
        _, _, directions = torch.linalg.svd(encodings - mean, full_matrices=False)
        directions = directions[: tower.whitening.shape[1]].T
        tower.mean = mean if centred else torch.zeros_like(mean)
        tower.whitening = directions / ((encodings - tower.mean) @ directions).norm(dim=1).mean()
    return model


def decay(weight_decay: float) -> dict[str, Any]:
    return {"optimizer": {"name": "AdamW", "weight_decay": weight_decay}}


MODELS: dict[str, tuple[Callable[[EmbeddedDataset], nn.Module], dict[str, Any]]] = {
    "ids": (ids_alone, {}),
    "ids, lr 1e-3": (ids_alone, {"lr": 1e-3}),
    "ids, lr 1e-2": (ids_alone, {"lr": 1e-2}),
    "ids, decay 0.1": (ids_alone, decay(0.1)),
    "ids, decay 1": (ids_alone, decay(1.0)),
    "text + ids": (text_beside_ids, {}),
    "  centred only": (partial(not_whitened, centred=True), {}),
    "  as it comes": (partial(not_whitened, centred=False), {}),
    "random + ids": (random_in_the_place_of_text, {}),
}


def test_ndcg(name: str, dataset: EmbeddedDataset, seed: int) -> float:
    train, validation, test = (dataset.get_split_data(split) for split in ("train", "validation", "test"))
    torch.manual_seed(seed)
    build, settings = MODELS[name]
    model = build(dataset)
    with tempfile.TemporaryDirectory() as folder:
        trainer = brim.Trainer(
            model, TrainDataLoader(train, 2048, device="cpu"), EvalDataLoader(validation, train, device="cpu"),
            EvalDataLoader(test, train, device="cpu", also_mask=validation), epochs=200, patience=5, seed=seed,
            device="cpu", threads=1, run_dir=Path(folder) / "run", **{"lr": 3e-3, **settings},
        )  # fmt: skip
        return trainer.fit().metrics["ndcg@10"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    facts, dataset = about("transformers"), EmbeddedDataset()
    train, validation, test = (dataset.get_split_data(split) for split in ("train", "validation", "test"))
    judge = EvalDataLoader(test, train, device="cpu", also_mask=validation)
    rows: dict[str, list[float]] = {
        "popularity": [judge.evaluate(Popularity(train))["ndcg@10"]],
        "EASE": [judge.evaluate(EASE(train))["ndcg@10"]],
    }
    for name in MODELS:
        rows[name] = [test_ndcg(name, dataset, seed) for seed in range(arguments.seeds)]
    print(f"\nembedded data, {len(train):,} training pairs, test NDCG@10, {facts['date']}\n")
    for name, values in rows.items():
        mean = statistics.mean(values)
        print(f"{name:16}{mean:8.4f}{mean / rows['popularity'][0]:7.2f}x   {'  '.join(f'{v:.4f}' for v in values)}")
    if arguments.json:
        arguments.json.write_text(json.dumps({**facts, "encoder": ENCODER, "ndcg@10": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
