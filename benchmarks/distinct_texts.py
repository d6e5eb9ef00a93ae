"""How many texts an epoch of the dynamic recommender encodes, beside encoding every occurrence.

python benchmarks/distinct_texts.py path/to/ml-1m [folder of the split]
"""

import sys

import torch

from brim.workloads.recommender import ML1MDataset, TrainDataLoader
from brim.workloads.recommender.encoders.texts_read import TextsRead


def main() -> None:
    path, split = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    dataset = ML1MDataset(path, split_files=split)
    users, items = (numbered(texts) for texts in (dataset.user_texts(), dataset.item_texts()))
    print(f"{len(users):,} users with {users.max() + 1:,} texts, {len(items):,} items with {items.max() + 1:,} texts")
    for batch_size in (2048, 32768):
        texts = TextsRead()
        for batch in TrainDataLoader(dataset.get_split_data("train"), batch_size, device="cpu", drop_last=True):
            for rows in (users[batch.users], items[torch.cat([batch.positives, batch.negatives])]):
                texts.add(len(rows), len(torch.unique(rows)))
        print(f"batch {batch_size:,}: {texts}")


def numbered(texts: list[str]) -> torch.Tensor:
    """The number of each one's text among those that differ."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return torch.tensor([numbers[text] for text in texts])


if __name__ == "__main__":
    main()
