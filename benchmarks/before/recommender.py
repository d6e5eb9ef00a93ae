"""A recommender as people write it first: BPR over triples that a DataLoader fetches one by one."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

USERS, ITEMS, TRIPLES = 6_040, 3_706, 400_000


class Triples(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.user = torch.randint(USERS, (TRIPLES,), generator=generator)
        self.positive = torch.randint(ITEMS, (TRIPLES,), generator=generator)
        self.negative = torch.randint(ITEMS, (TRIPLES,), generator=generator)

    def __len__(self):
        return len(self.user)

    def __getitem__(self, index):
        return {"user": self.user[index], "positive": self.positive[index], "negative": self.negative[index]}


class Recommender(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, width), nn.Embedding(ITEMS, width)
        self.mlp = nn.Sequential(nn.Linear(2 * width, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, user, item):
        return self.mlp(torch.cat([self.users(user), self.items(item)], dim=-1)).squeeze(-1)


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Triples(), batch_size=2048, shuffle=True)
    model = Recommender().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(50):
        total = 0.0
        for batch in loader:
            user, positive, negative = (batch[key].to(device) for key in ("user", "positive", "negative"))
            optimizer.zero_grad()
            loss = -nn.functional.logsigmoid(model(user, positive) - model(user, negative)).mean()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
