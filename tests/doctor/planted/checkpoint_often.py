# cause: checkpoint-in-the-loop
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset


class Learner:
    def __init__(self, out):
        self.out = Path(out)
        self.out.mkdir(exist_ok=True)
        self.net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
        self.opt = torch.optim.Adam(self.net.parameters())
        self.best = float("inf")

    def save(self, name):
        torch.save({"model": self.net.state_dict(), "opt": self.opt.state_dict()}, self.out / name)

    def fit(self, loader, epochs):
        for _ in range(epochs):
            for (x,) in loader:
                self.opt.zero_grad()
                loss = (self.net(x) - x).square().mean()
                loss.backward()
                self.opt.step()
                self.save("last.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    Learner("checkpoints").fit(DataLoader(TensorDataset(torch.randn(4096, 256)), batch_size=64), 1000)
