# cause: sync-in-the-loop
import torch

model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(12))).cuda()
torch.set_float32_matmul_precision("high")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
x = torch.randn(4096, 1024, device="cuda")
total = 0.0
for _step in range(100_000):
    optimizer.zero_grad()
    hidden = x
    for layer in model:
        hidden = layer(hidden)
        total += hidden.mean().item()
    loss = hidden.pow(2).mean()
    loss.backward()
    optimizer.step()
