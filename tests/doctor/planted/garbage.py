# cause: garbage-collection
import gc

import torch

graph = [{"neighbours": [number]} for number in range(100_000)]
x = torch.randn(64, 64)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _step in range(100_000):
    optimizer.zero_grad()
    loss = (model(x) - x).pow(2).mean()
    loss.backward()
    optimizer.step()
    gc.collect()
