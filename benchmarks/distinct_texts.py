"""How many texts an epoch of the dynamic recommender encodes, beside encoding every occurrence.

python benchmarks/distinct_texts.py path/to/ml-1m [--split folder] [--json out.json]
"""

import argparse
import json
from pathlib import Path

import torch

from brim.workloads.recommender import ML1MDataset, TrainDataLoader
from brim.workloads.recommender.encoders.texts_read import TextsRead


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--split")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    dataset = ML1MDataset(arguments.path, split_files=arguments.split)
    users, items = (numbered(texts) for texts in (dataset.user_texts(), dataset.item_texts()))
    facts = {"users": len(users), "user texts": int(users.max()) + 1, "items": len(items), "rows": {}}
    print(f"{len(users):,} users with {facts['user texts']:,} texts, {len(items):,} items")
    for batch_size in (2048, 32768):
        texts = TextsRead()
        for batch in TrainDataLoader(dataset.get_split_data("train"), batch_size, device="cpu", drop_last=True):
            for rows in (users[batch.users], items[torch.cat([batch.positives, batch.negatives])]):
                texts.add(len(rows), len(torch.unique(rows)))
        facts["rows"][str(batch_size)] = {"occurred": texts.occurred, "encoded": texts.encoded}
        print(f"batch {batch_size:,}: {texts}")
    if arguments.json:
        arguments.json.write_text(json.dumps(facts, indent=2) + "\n")


def numbered(texts: list[str]) -> torch.Tensor:
    """The number of each one's text among those that differ."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return torch.tensor([numbers[text] for text in texts])


if __name__ == "__main__":
    main()
