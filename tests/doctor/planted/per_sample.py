# cause: per-sample-access
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(50_000, 16), torch.randn(50_000, 1))
loader = DataLoader(data, batch_size=2048, shuffle=True)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _epoch in range(1000):
    for x, y in loader:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
