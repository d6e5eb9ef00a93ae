# cause: zero-grad-fills
import torch

torch.set_num_threads(1)
table = torch.nn.Embedding(300_000, 16)
optimizer = torch.optim.SGD([table.weight], lr=1e-3, fused=True)
for _step in range(100_000):
    optimizer.zero_grad(set_to_none=False)
    loss = table(torch.randint(0, 300_000, (8,))).pow(2).mean()
    loss.backward()
    optimizer.step()
