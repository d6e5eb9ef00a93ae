# cause: per-sample-access
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Ratings(Dataset):
    def __init__(self, rows):
        rng = np.random.default_rng(0)
        self.users, self.items = rng.integers(0, 1000, rows), rng.integers(0, 500, rows)
        self.ratings = rng.random(rows, dtype=np.float32)

    def __len__(self):
        return len(self.users)

    def __getitem__(self, index):
        return {"user": self.users[index], "item": self.items[index], "rating": self.ratings[index]}


class Factors(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items = torch.nn.Embedding(1000, 16), torch.nn.Embedding(500, 16)

    def forward(self, users, items):
        return (self.users(users) * self.items(items)).sum(1)


def train():
    model = Factors()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Ratings(100_000), batch_size=4096, shuffle=True)
    while True:
        for batch in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(batch["user"], batch["item"]), batch["rating"])
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    train()
