# cause: optimizer-not-fused
import torch

torch.set_num_threads(1)
model = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(400))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
x = torch.randn(4, 8)
for _step in range(100_000):
    optimizer.zero_grad()
    weights = torch.stack([layer.weight for layer in model]).sum(0)
    biases = torch.stack([layer.bias for layer in model]).sum(0)
    loss = (x @ weights + biases).pow(2).mean()
    loss.backward()
    optimizer.step()
