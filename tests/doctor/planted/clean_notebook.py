# cause: none
# %%
import torch
from torch.utils.data import DataLoader

torch.set_num_threads(1)
images = torch.rand(1024, 1, 28, 28)
labels = torch.randint(0, 10, (1024,))
loader = DataLoader(list(zip(images, labels, strict=True)), batch_size=64, shuffle=True)


# %%
def endless(loader):
    while True:
        yield from loader


# %%
net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 32, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(32, 64, 5), torch.nn.ReLU(),
    torch.nn.Flatten(), torch.nn.Linear(64 * 64, 10),
)  # fmt: skip
opt = torch.optim.SGD(net.parameters(), lr=0.01)
it = endless(loader)
losses = []
for i in range(100_000):
    xb, yb = next(it)
    loss = torch.nn.functional.cross_entropy(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if i % 100 == 0:
        print(i, sum(losses[-100:]) / len(losses[-100:]))
