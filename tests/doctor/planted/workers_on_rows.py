# cause: per-sample-access
import torch
from torch.utils.data import DataLoader, TensorDataset, random_split


def loaders(rows, batch_size):
    data = TensorDataset(torch.randint(0, 1000, (rows,)), torch.randint(0, 500, (rows,)), torch.rand(rows))
    train, valid = random_split(data, [0.9, 0.1])
    options = {"batch_size": batch_size, "num_workers": 2, "persistent_workers": True}
    return DataLoader(train, shuffle=True, **options), DataLoader(valid, **options)


class Recommender(torch.nn.Module):
    def __init__(self, users, items, width):
        super().__init__()
        self.user, self.item = torch.nn.Embedding(users, width), torch.nn.Embedding(items, width)

    def forward(self, user, item):
        return (self.user(user) * self.item(item)).sum(-1)


def main():
    torch.set_num_threads(1)
    train, valid = loaders(400_000, 1024)
    model = Recommender(1000, 500, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _epoch in range(20):
        for user, item, rating in train:
            loss = torch.nn.functional.mse_loss(model(user, item), rating)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            print(sum(torch.nn.functional.mse_loss(model(u, i), r).item() for u, i, r in valid) / len(valid))


if __name__ == "__main__":
    main()
