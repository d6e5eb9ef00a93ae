# cause: too-many-threads
import os

import torch

torch.set_num_threads(16 * len(os.sched_getaffinity(0)))
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(512, 256)
for _step in range(100_000):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
