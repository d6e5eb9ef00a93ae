# cause: too-many-workers
import os

import torch
from torch.utils.data import DataLoader, Dataset


class Busy(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        total = 0
        for number in range(20_000):
            total += number * index
        return torch.full((64,), float(total % 7))


if __name__ == "__main__":
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for x in DataLoader(Busy(), batch_size=16, num_workers=6 * len(os.sched_getaffinity(0))):
        optimizer.zero_grad()
        loss = (model(x) - x).pow(2).mean()
        loss.backward()
        optimizer.step()
