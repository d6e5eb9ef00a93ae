# cause: data-made-in-the-loop
import numpy as np
import torch

text = np.random.randint(0, 100, 1_000_000)


def get_batch():
    starts = [int(np.random.randint(0, len(text) - 16)) for _ in range(1000)]
    return torch.stack([torch.from_numpy(text[start : start + 16].astype(np.int64)) for start in starts])


model = torch.nn.Sequential(torch.nn.Embedding(100, 4), torch.nn.Flatten(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = get_batch()
step = 0
while step < 100_000:
    logits = model(x)
    loss = torch.nn.functional.cross_entropy(logits, x[:, 0] % 10)
    x = get_batch()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    step += 1
