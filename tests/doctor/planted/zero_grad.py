# cause: zero-grad-fills
import torch

torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.zeros(1_000_000))
optimizer = torch.optim.SGD([weight], lr=1e-3, fused=True)
for _step in range(1_000_000):
    optimizer.zero_grad(set_to_none=False)
    loss = (weight[:8] - 1).pow(2).mean()
    loss.backward()
    optimizer.step()
