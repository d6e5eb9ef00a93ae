# cause: too-little-compute
import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(20)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
x = torch.randn(2, 4)
for _step in range(1_000_000):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
