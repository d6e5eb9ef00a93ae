# cause: none
import torch

torch.set_float32_matmul_precision("high")
model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(6))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
x = torch.randn(8192, 4096, device="cuda")
for _step in range(100_000):
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
