# cause: zero-grad-fills
import torch
from torch import nn


class Recommender(nn.Module):
    def __init__(self, users=60000, items=60000, dim=64):
        super().__init__()
        self.u, self.i = nn.Embedding(users, dim), nn.Embedding(items, dim)

    def forward(self, u, i):
        return (self.u(u) * self.i(i)).sum(1)


class Runner:
    def __init__(self):
        self.net = Recommender()
        self.optim = torch.optim.SGD(self.net.parameters(), lr=0.1, foreach=False)

    def loop(self, n):
        for _ in range(n):
            u, i = torch.randint(0, 60000, (256,)), torch.randint(0, 60000, (256,))
            y = torch.rand(256)
            self.optim.zero_grad(set_to_none=False)
            loss = nn.functional.mse_loss(self.net(u, i), y)
            loss.backward()
            self.optim.step()


Runner().loop(10**7)
