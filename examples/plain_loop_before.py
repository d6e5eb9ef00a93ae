"""A loop as everybody writes it: python examples/plain_loop_before.py

`examples/plain_loop.py` is the same with five lines of brim.
"""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Forecaster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 64, num_layers=2, batch_first=True)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(64, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def train(model: nn.Module, loader: DataLoader, device: str, epochs: int) -> Tensor:
    model, criterion = model.to(device), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for inputs, target in loader:
            inputs, target = inputs.to(device), target.to(device)
            optimizer.zero_grad()
            loss = criterion(model(inputs), target)
            loss.backward()
            optimizer.step()
    return loss


def main(samples: int = 2_048, epochs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    x = torch.randn(samples, 30, 8)
    data = TensorDataset(x, x[:, -7:, 0].mean(1, keepdim=True))
    model, device = Forecaster(), "cuda" if torch.cuda.is_available() else "cpu"
    loss = train(model, DataLoader(data, batch_size=128, shuffle=True), device, epochs)
    print(f"loss {loss.item():.4f}")
    return model


if __name__ == "__main__":
    main()
