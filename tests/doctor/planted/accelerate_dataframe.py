# cause: per-sample-access
import numpy as np
import pandas as pd
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sales(Dataset):
    def __init__(self, frame):
        self.frame = frame

    def __len__(self):
        return len(self.frame)

    def __getitem__(self, idx):
        row = self.frame.iloc[idx]
        features = torch.tensor([row["price"], row["age"], row["stock"]], dtype=torch.float32)
        return features, torch.tensor(row["sold"], dtype=torch.float32)


def main():
    frame = pd.DataFrame(np.random.rand(20_000, 4), columns=["price", "age", "stock", "sold"])
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Sales(frame), batch_size=256, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(100):
        for features, target in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(features).squeeze(-1), target)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
