# cause: evaluation
import torch
from torch.utils.data import DataLoader

train = DataLoader(list(torch.randn(64, 256)), batch_size=16)
valid = DataLoader(list(torch.randn(1024, 256)), batch_size=4)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def evaluate():
    model.eval()
    with torch.no_grad():
        losses = [(model(x) - x).pow(2).mean().item() for x in valid]
    model.train()
    return sum(losses) / len(losses)


for _epoch in range(10_000):
    for x in train:
        optimizer.zero_grad()
        loss = (model(x) - x).pow(2).mean()
        loss.backward()
        optimizer.step()
    evaluate()
