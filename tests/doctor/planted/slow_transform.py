# cause: no-workers
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        time.sleep(0.01)  # a server, or a disk
        return torch.randn(256), index % 10


model = torch.nn.Linear(256, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for images, labels in DataLoader(Images(), batch_size=4):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
