"""A forecaster as people write it first: an LSTM over windows of 30 days, batches of 128, four workers."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WINDOW, DAYS = 30, 200_000


class Windows(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.series = torch.randn(DAYS, 1, generator=generator).cumsum(0) / 100

    def __len__(self):
        return len(self.series) - WINDOW

    def __getitem__(self, index):
        return self.series[index : index + WINDOW], self.series[index + WINDOW]


class Forecaster(nn.Module):
    def __init__(self, hidden=64, layers=2):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Windows(), batch_size=128, shuffle=True, num_workers=4)
    model = Forecaster().to(device)
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(50):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
