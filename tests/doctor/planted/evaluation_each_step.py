# cause: evaluation
import argparse

import torch
import torch.nn.functional as F
from tqdm import trange


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--batch-size", type=int, default=64)
    return parser.parse_args()


@torch.no_grad()
def validate(model, inputs, targets):
    model.eval()
    predictions = []
    for part in inputs.split(128):
        predictions.append(model(part).argmax(1).cpu())
    model.train()
    return (torch.cat(predictions) == targets).float().mean().item()


def main(args):
    torch.set_num_threads(1)
    train_x, train_y = torch.randn(10_000, 128), torch.randint(0, 10, (10_000,))
    valid_x, valid_y = torch.randn(2_000, 128), torch.randint(0, 10, (2_000,))
    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    best = 0.0
    for _ in trange(args.steps):
        rows = torch.randint(0, len(train_x), (args.batch_size,))
        loss = F.cross_entropy(model(train_x[rows]), train_y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        best = max(best, validate(model, valid_x, valid_y))


if __name__ == "__main__":
    main(parse())
