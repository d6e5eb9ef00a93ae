# cause: none
import argparse
import logging

import torch
from torch import nn
from tqdm import tqdm

log = logging.getLogger(__name__)


class Generator(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, 784), nn.Tanh())

    def forward(self, z):
        return self.layers(z)


def train(args):
    G, D = Generator(args.width), nn.Sequential(nn.Linear(784, args.width), nn.ReLU(), nn.Linear(args.width, 1))
    opt_g, opt_d = (torch.optim.SGD(net.parameters(), lr=1e-3) for net in (G, D))
    data = torch.rand(4096, 784)
    for epoch in range(args.epochs):
        bar = tqdm(data.split(args.batch_size), desc=f"epoch {epoch}")
        for real in bar:
            fake = G(torch.randn(len(real), 32))
            opt_d.zero_grad()
            d_loss = nn.functional.softplus(-D(real)).mean() + nn.functional.softplus(D(fake.detach())).mean()
            d_loss.backward()
            opt_d.step()
            opt_g.zero_grad()
            g_loss = nn.functional.softplus(-D(fake)).mean()
            g_loss.backward()
            opt_g.step()
            bar.set_postfix(d=d_loss.item(), g=g_loss.item())
        log.info("epoch %d", epoch)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=1000)
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    train(parser.parse_args())
