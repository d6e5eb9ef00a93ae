# cause: data-made-in-the-loop
import datetime
import time
from collections import defaultdict, deque

import torch
from torch import nn


class SmoothedValue:
    def __init__(self, size=20):
        self.deque = deque(maxlen=size)

    def update(self, value):
        self.deque.append(value)


class MetricLogger:
    def __init__(self):
        self.meters = defaultdict(SmoothedValue)

    def update(self, **values):
        for k, v in values.items():
            self.meters[k].update(v.item() if isinstance(v, torch.Tensor) else v)

    def log_every(self, iterable, print_freq, header):
        start = time.time()
        for i, obj in enumerate(iterable):
            yield obj
            if i % print_freq == 0:
                print(f"{header} [{i}] {datetime.timedelta(seconds=int(time.time() - start))}")


class Videos:
    def __iter__(self):
        for _ in range(100_000):
            time.sleep(0.009)
            yield torch.randn(32, 256), torch.randint(0, 4, (32,))


def train_one_epoch(model, criterion, optimizer, data_loader, epoch):
    model.train()
    metric_logger = MetricLogger()
    header = f"Epoch: [{epoch}]"
    for image, target in metric_logger.log_every(data_loader, 100, header):
        output = model(image)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metric_logger.update(loss=loss.item(), lr=optimizer.param_groups[0]["lr"])


def main():
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(10):
        train_one_epoch(model, nn.CrossEntropyLoss(), optimizer, Videos(), epoch)


if __name__ == "__main__":
    main()
