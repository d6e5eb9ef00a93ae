# cause: epoch-every-step
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ContrastiveRun:
    def __init__(self):
        self.data = TensorDataset(torch.randn(100_000, 32))
        self.loader = DataLoader(self.data, batch_size=32, shuffle=True)
        self.net = nn.Linear(32, 32)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def sample(self):
        return next(iter(self.loader))[0]

    def run(self, steps):
        for _ in range(steps):
            a = self.sample()
            loss = (self.net(a) - a).square().mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()


ContrastiveRun().run(100_000)
