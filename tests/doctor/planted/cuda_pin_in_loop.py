# cause: pin-memory-in-the-loop
import torch

torch.set_float32_matmul_precision("high")
model = torch.nn.Linear(4096, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
batches = [torch.randn(8192, 4096) for _ in range(4)]
for step in range(100_000):
    x = batches[step % 4].pin_memory()
    x = x.to("cuda", non_blocking=True)
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
