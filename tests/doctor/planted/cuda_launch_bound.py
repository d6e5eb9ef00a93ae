# cause: too-little-compute
import torch

torch.set_float32_matmul_precision("high")
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(30))).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
x = torch.randn(128, 64, device="cuda")
for _step in range(1_000_000):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
