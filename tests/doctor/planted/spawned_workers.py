# cause: workers-restarted
import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        return torch.tensor([index / 200.0]), torch.tensor([(index / 200.0) ** 2])


def train_one_epoch(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Squares(), batch_size=8, shuffle=True, num_workers=1, multiprocessing_context="spawn")
    for epoch in range(1000):
        print(epoch, train_one_epoch(model, loader, optimizer))


if __name__ == "__main__":
    main()
