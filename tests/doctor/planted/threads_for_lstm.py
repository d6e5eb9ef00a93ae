# cause: too-many-threads
import argparse
import os

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.lstm = nn.LSTM(8, hidden, num_layers=2, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=8 * (os.cpu_count() or 1))
    parser.add_argument("--hidden", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    x, y = torch.randn(64, 24, 8), torch.randn(64, 1)
    model, criterion = Forecaster(args.hidden), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(100_000):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


if __name__ == "__main__":
    main()
