# cause: memory-given-back
import gc

import torch

torch.set_float32_matmul_precision("high")
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(6))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
x = torch.randn(4096, 2048, device="cuda")
gc.disable()
for _step in range(100_000):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    torch.cuda.empty_cache()
