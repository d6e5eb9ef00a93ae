# cause: logging-every-step
# %%
import json

import torch
from torch.utils.data import DataLoader, TensorDataset

# %% data
torch.set_num_threads(1)
x = torch.linspace(-1, 1, 2048).unsqueeze(1)
y = x**3
dl = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
it = iter(dl)

# %% model
net = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
history = []

# %% train
for i in range(100_000):
    try:
        batch = next(it)
    except StopIteration:
        it = iter(dl)
        batch = next(it)
    xb, yb = batch
    opt.zero_grad()
    loss = ((net(xb) - yb) ** 2).mean()
    loss.backward()
    opt.step()
    history.append(loss.item())
    print(f"step {i}: loss {loss.item():.5f}, weights {json.dumps({n: p.tolist() for n, p in net.named_parameters()})}")
    with open("history.json", "w") as file:
        json.dump(history[-1000:], file)
