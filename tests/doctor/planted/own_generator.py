# cause: data-made-in-the-loop
import random

import torch


def batches():
    while True:
        rows = [[random.random() for _ in range(64)] for _ in range(256)]
        yield torch.tensor(rows)


class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(64, 64)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def step(self, x):
        self.optimizer.zero_grad()
        loss = (self.model(x) - x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self):
        for x in batches():
            self.step(x)


Trainer().fit()
