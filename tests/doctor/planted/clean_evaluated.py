# cause: none
import torch
from torch.utils.data import DataLoader, TensorDataset


def run_epoch(net, loader, optimizer=None):
    net.train(optimizer is not None)
    total, right = 0.0, 0
    for x, y in loader:
        with torch.set_grad_enabled(optimizer is not None):
            out = net(x)
            loss = torch.nn.functional.cross_entropy(out, y)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item() * len(x)
        right += (out.argmax(1) == y).sum().item()
    return total / len(loader.dataset), right / len(loader.dataset)


def main():
    torch.set_num_threads(1)
    train = TensorDataset(torch.randn(4096, 1024), torch.randint(0, 10, (4096,)))
    valid = TensorDataset(torch.randn(512, 1024), torch.randint(0, 10, (512,)))
    train, valid = DataLoader(train, batch_size=128, shuffle=True), DataLoader(valid, batch_size=256)
    net = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    for epoch in range(1000):
        loss, _ = run_epoch(net, train, optimizer)
        valid_loss, accuracy = run_epoch(net, valid)
        scheduler.step()
        print(f"{epoch}: {loss:.3f} {valid_loss:.3f} {accuracy:.3f}")


if __name__ == "__main__":
    main()
