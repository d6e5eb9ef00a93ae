# cause: no-workers
import json
import random
import tempfile

import torch
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        while True:
            with open(self.path) as file:
                for line in file:
                    record = json.loads(line)
                    words = record["text"].split()
                    counts = torch.zeros(500)
                    for word in words:
                        counts[hash(word) % 500] += 1
                    yield counts, float(record["stars"])


def fit(path):
    torch.set_num_threads(1)
    model = torch.nn.Linear(500, 1)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    seen = 0
    for counts, stars in DataLoader(Lines(path), batch_size=32):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(counts)[:, 0], stars.float())
        loss.backward()
        optimizer.step()
        seen += len(stars)
        if seen >= 10_000_000:
            return


with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
    for _ in range(2000):
        text = " ".join(f"w{random.randrange(2000)}" for _ in range(200))
        file.write(json.dumps({"text": text, "stars": random.randrange(5)}) + "\n")
    file.flush()
    fit(file.name)
