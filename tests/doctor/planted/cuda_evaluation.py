# cause: evaluation
import torch
from torch.utils.data import DataLoader, TensorDataset


def evaluate(model, loader, device):
    model.eval()
    outputs, targets = [], []
    with torch.no_grad():
        for x, y in loader:
            outputs.append(model(x.to(device)).cpu())
            targets.append(y)
    model.train()
    return (torch.cat(outputs).argmax(1) == torch.cat(targets)).float().mean().item()


def main():
    device = torch.device("cuda")
    torch.set_float32_matmul_precision("high")
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1000)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    x, y = torch.randn(4096, 512, device=device), torch.randint(0, 1000, (4096,), device=device)
    valid = DataLoader(TensorDataset(torch.randn(8192, 512), torch.randint(0, 1000, (8192,))), batch_size=256)
    for step in range(100_000):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            evaluate(model, valid, device)


if __name__ == "__main__":
    main()
