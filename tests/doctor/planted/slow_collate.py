# cause: slow-collate
import time

import torch
from torch.utils.data import DataLoader


def collate(samples):
    time.sleep(0.03)
    return torch.stack(samples)


data = [torch.randn(64) for _ in range(1000)]
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _epoch in range(100):
    for x in DataLoader(data, batch_size=8, collate_fn=collate):
        optimizer.zero_grad()
        loss = (model(x) - x).pow(2).mean()
        loss.backward()
        optimizer.step()
